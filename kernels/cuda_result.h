// CudaResult: what a call of CUDA returned, with the call and its place. For code without Abseil;
// transport/cuda/status.h turns it into an absl::Status.
//
// No CUDA header is needed to include this. Any thread.
#pragma once

#include <cstdint>

struct CUstream_st;
struct CUevent_st;

namespace bascule::inline v0::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t; null: the default stream

struct [[nodiscard]] CudaResult {
  int code = 0;           // cudaError_t, whose numbers are those of CUresult
  const char* call = "";  // as it stands in the source; lives for ever
  const char* file = "";  // without folders
  int line = 0;
  std::uint64_t bytes = 0;  // of memory, if the call asked for some
  bool ok() const { return code == 0; }
};

// Passes on what a call of the runtime returned. The runtime remembers the last error of each thread, and a user's
// program may look there for its own. An error of ours is therefore cleared, since it is returned here. An error that
// the user left is never read and stays, unless an error of ours replaces it.
int told(int answer);

constexpr const char* file_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') name = path + 1;
  return name;
}

// For errors that cannot be returned, those of destructors: keeps the first error since the last take_kept_errors(),
// and counts all. Process-wide, since a destructor has no other place to report to.
void keep_error(const CudaResult& result);
struct KeptErrors {
  CudaResult first;
  std::uint64_t count = 0;
};
KeptErrors take_kept_errors();

}  // namespace bascule::inline v0::kernels::cuda

// The CudaResult of `code`, which the runtime does not remember: a CUresult of the driver, or a refusal of our own.
#define BASCULE_CUDA_CODE(code)                                                            \
  ::bascule::kernels::cuda::CudaResult {                                                   \
    static_cast<int>(code), #code, ::bascule::kernels::cuda::file_name(__FILE__), __LINE__ \
  }
// The CudaResult of `call`, a call of the runtime.
#define BASCULE_CUDA_RESULT(call)                                                                                 \
  ::bascule::kernels::cuda::CudaResult {                                                                          \
    ::bascule::kernels::cuda::told(static_cast<int>(call)), #call, ::bascule::kernels::cuda::file_name(__FILE__), \
        __LINE__                                                                                                  \
  }
// Returns early with the CudaResult of a call of the runtime that failed.
#define BASCULE_CUDA_CHECK(call)                                                                               \
  do {                                                                                                         \
    if (::bascule::kernels::cuda::CudaResult bascule_result = BASCULE_CUDA_RESULT(call); !bascule_result.ok()) \
      return bascule_result;                                                                                   \
  } while (false)
// The same for an expression that is a CudaResult.
#define BASCULE_CUDA_PASS(expression)                                                             \
  do {                                                                                            \
    if (::bascule::kernels::cuda::CudaResult bascule_result = (expression); !bascule_result.ok()) \
      return bascule_result;                                                                      \
  } while (false)
