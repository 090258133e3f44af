// Errors of CUDA as absl::Status: with the call, the device and the place, and never dropped.
//
//   BASCULE_CUDA(cudaStreamCreate(&stream));        // returns early with a Status
//   status = cuda_status(plan.pack(...));           // of what the kernels answer
//
// Any thread. Codes: RESOURCE_EXHAUSTED out of memory; INVALID_ARGUMENT; UNAVAILABLE no driver, no device, or one that
// is not ready; INTERNAL a sticky error; UNKNOWN any other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::cuda {

// OK, or "cudaMalloc(&p, n): out of memory (2, cudaErrorMemoryAllocation), asked for 4096 bytes on device 0, at
// cuda_pack.cu:12".
absl::Status cuda_status(const kernels::cuda::CudaResult& result);

// Whether the error took the process's context on that device with it: every later call there fails, and only a new
// process helps. A worker that meets one is poisoned. Made by cuda_status() and kept by annotate(); false for others.
bool is_sticky(const absl::Status& status);

// The sticky error of things on `device` that were made before the process reset it (kernels/cuda_life.h).
absl::Status was_reset(int device);

// The errors that destructors met since the last call, their own and the kernels': the first one, which tells how many
// there were. OK: none. Owners that fail to release cannot return an error, so reports and logs ask here.
absl::Status take_kept_errors();

}  // namespace bascule::inline v0::cuda

// Returns early with the Status of a call of the runtime, or of the driver, that failed.
#define BASCULE_CUDA(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_RESULT(call)))
#define BASCULE_CUDA_DRIVER(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_CODE(call)))
