// CudaResult: the result of a CUDA call, with the call and its source line, for code that does not use Abseil;
// transport/cuda/status.h turns it into an absl::Status.
//
// This header needs no CUDA header. Any thread.
#pragma once

#include <cstdint>

struct CUstream_st;
struct CUevent_st;

namespace bascule::inline v0::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t; null: the default stream

struct [[nodiscard]] CudaResult {
  int code = 0;           // cudaError_t or CUresult, which have the same numbers
  const char* call = "";  // as in the source; a static string
  const char* file = "";  // without folders
  int line = 0;
  std::uint64_t bytes = 0;  // how much memory the call requested, if any
  bool ok() const { return code == 0; }
};

// Returns the result of a runtime call as it is, and on an error also clears the runtime's memory of it. The runtime
// remembers each thread's last error, and a user's program may look there for its own errors, so ours must not stay
// there. A user's error is never read, and stays unless one of ours has replaced it.
int clear_error_of(int answer);

constexpr const char* file_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') name = path + 1;
  return name;
}

// For errors in destructors, which cannot return them: keeps the first one since the last take_kept_errors(), and
// counts all. They are kept per process, since a destructor has no other place to report to.
void keep_error(const CudaResult& result);
struct KeptErrors {
  CudaResult first;
  std::uint64_t count = 0;
};
KeptErrors take_kept_errors();

}  // namespace bascule::inline v0::kernels::cuda

// The CudaResult of an error `code` that the runtime does not remember: a CUresult of the driver, or an error of our
// own.
#define BASCULE_CUDA_CODE(code)                                                            \
  ::bascule::kernels::cuda::CudaResult {                                                   \
    static_cast<int>(code), #code, ::bascule::kernels::cuda::file_name(__FILE__), __LINE__ \
  }
// The CudaResult of `call`, a runtime call.
#define BASCULE_CUDA_RESULT(call)                                            \
  ::bascule::kernels::cuda::CudaResult {                                     \
    ::bascule::kernels::cuda::clear_error_of(static_cast<int>(call)), #call, \
        ::bascule::kernels::cuda::file_name(__FILE__), __LINE__              \
  }
// Returns early with the CudaResult of a runtime call that failed.
#define BASCULE_CUDA_CHECK(call)                                                                               \
  do {                                                                                                         \
    if (::bascule::kernels::cuda::CudaResult bascule_result = BASCULE_CUDA_RESULT(call); !bascule_result.ok()) \
      return bascule_result;                                                                                   \
  } while (false)
// Like BASCULE_CUDA_CHECK, for a CudaResult expression.
#define BASCULE_CUDA_PASS(expression)                                                             \
  do {                                                                                            \
    if (::bascule::kernels::cuda::CudaResult bascule_result = (expression); !bascule_result.ok()) \
      return bascule_result;                                                                      \
  } while (false)
