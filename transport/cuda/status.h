// Turns CUDA's errors into absl::Status, with the call, the device and the source line. No error is dropped.
//
//   BASCULE_CUDA(cudaStreamCreate(&stream));        // returns early with a Status
//   status = cuda_status(plan.pack(...));           // from a kernel's CudaResult
//
// Any thread. The codes are RESOURCE_EXHAUSTED for a lack of memory; INVALID_ARGUMENT; UNAVAILABLE for no driver, no
// device, or a device that is not ready; INTERNAL for a sticky error; and UNKNOWN for any other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::cuda {

// Returns OK, or "cudaMalloc(&p, n): out of memory (2, cudaErrorMemoryAllocation), asked for 4096 bytes on device 0, at
// cuda_pack.cu:12".
absl::Status cuda_status(const kernels::cuda::CudaResult& result);

// Returns true if the error destroyed the process's context on that device: every later call there fails, and only a
// new process helps. A worker that meets such an error is poisoned. cuda_status() marks such statuses, and annotate()
// keeps the mark.
bool is_sticky(const absl::Status& status);

// Returns the sticky error for objects on `device` that were made before the process reset that device
// (kernels/cuda_life.h).
absl::Status was_reset(int device);

// Destructors, here and in kernels/, cannot return their errors, so they are kept for reports and logs. Returns the
// first error since the last call, with the number of errors, or OK.
absl::Status take_kept_errors();

}  // namespace bascule::inline v0::cuda

// Returns early with the Status of a runtime or driver call that failed.
#define BASCULE_CUDA(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_RESULT(call)))
#define BASCULE_CUDA_DRIVER(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_CODE(call)))
