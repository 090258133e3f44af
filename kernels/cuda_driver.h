// Looks up driver functions that the runtime lacks, or whose errors it would remember. This happens on first use, since
// nothing links libcuda. transport/cuda/driver.h lists the functions that must exist.
#pragma once

namespace bascule::inline v0::kernels::cuda {

// Returns the driver's function of that name, as of CUDA 12.0, or null if there is no driver or no such function.
void* driver_function(const char* name);

template <typename Function>
Function driver_function(const char* name) {
  return reinterpret_cast<Function>(driver_function(name));
}

}  // namespace bascule::inline v0::kernels::cuda
