// CUDA's errors as absl::Status, with the call, the device and the source line; none is dropped.
//
//   BASCULE_CUDA(cudaStreamCreate(&stream));        // returns early with a Status
//   status = cuda_status(plan.pack(...));           // from a kernel's CudaResult
//
// Any thread. Codes: RESOURCE_EXHAUSTED: out of memory; INVALID_ARGUMENT; UNAVAILABLE: no driver, no device, or a
// device that is not ready; INTERNAL: a sticky error; UNKNOWN: any other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::cuda {

// OK, or "cudaMalloc(&p, n): out of memory (2, cudaErrorMemoryAllocation), asked for 4096 bytes on device 0, at
// cuda_pack.cu:12".
absl::Status cuda_status(const kernels::cuda::CudaResult& result);

// Whether the error destroyed the process's context on that device: every later call there fails, and only a new
// process helps. A worker that meets one is poisoned. cuda_status() sets the mark and annotate() keeps it.
bool is_sticky(const absl::Status& status);

// The sticky error for objects on `device` that were made before the process reset it (kernels/cuda_life.h).
absl::Status was_reset(int device);

// Returns the first error in a destructor, here or in kernels/, since the last call, with their number, or OK.
// Destructors cannot return errors, so reports and logs take them from here.
absl::Status take_kept_errors();

}  // namespace bascule::inline v0::cuda

// Returns early with the Status of a runtime or driver call that failed.
#define BASCULE_CUDA(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_RESULT(call)))
#define BASCULE_CUDA_DRIVER(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_CODE(call)))
