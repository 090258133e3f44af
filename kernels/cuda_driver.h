// Functions of the driver that the runtime does not have, or that the runtime remembers errors of: looked up when they
// are first asked for, since nothing links libcuda. See transport/cuda/driver.h for those that must be there.
#pragma once

namespace bascule::inline v0::kernels::cuda {

// The driver's function of that name, as of CUDA 12.0; null: there is no driver, or it has none such.
void* driver_function(const char* name);

template <typename Function>
Function driver_function(const char* name) {
  return reinterpret_cast<Function>(driver_function(name));
}

}  // namespace bascule::inline v0::kernels::cuda
