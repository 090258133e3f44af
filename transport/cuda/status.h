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
#include "kernels/cuda_result.h"

namespace bascule::cuda {

// OK, or "cudaMalloc(&p, n): out of memory (2, cudaErrorMemoryAllocation) on device 0, at pack.cu:12". Clears the
// runtime's own memory of the error, so that no later call reports it again.
absl::Status cuda_status(const kernels::cuda::CudaResult& result);

// Whether the error took the process's context on that device with it: every later call there fails, and only a new
// process helps. A worker that meets one is poisoned. Made by cuda_status() and kept by annotate(); false for others.
bool is_sticky(const absl::Status& status);

// The errors that destructors met since the last call, their own and the kernels': the first one, which tells how many
// there were. OK: none. Owners that fail to let go cannot tell anyone else, so whoever reports asks here.
absl::Status take_kept_errors();

}  // namespace bascule::cuda

// Returns early with the Status of a call that answers a cudaError_t or a CUresult.
#define BASCULE_CUDA(call) BASCULE_TRY(::bascule::cuda::cuda_status(BASCULE_CUDA_RESULT(call)))
