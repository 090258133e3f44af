// CudaResult: what a call of CUDA answered, with the call and its place. For code without Abseil;
// transport/cuda/status.h makes an absl::Status of it.
//
// No CUDA header is needed to include this. Any thread.
#pragma once

#include <cstdint>

struct CUstream_st;
struct CUevent_st;

namespace bascule::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t; null: the default stream

struct [[nodiscard]] CudaResult {
  int code = 0;           // cudaError_t, whose numbers are those of CUresult
  const char* call = "";  // as it stands in the source; lives for ever
  const char* file = "";  // without folders
  int line = 0;
  bool ok() const { return code == 0; }
};

constexpr const char* file_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') name = path + 1;
  return name;
}

// For errors that nobody is told at their place, those of destructors: the first one since the last take_kept_error()
// stays, and the number of all. Process-wide, and the one such place: a destructor knows nobody else to tell.
void keep_error(const CudaResult& result);
struct KeptErrors {
  CudaResult first;
  std::uint64_t count = 0;
};
KeptErrors take_kept_errors();

}  // namespace bascule::kernels::cuda

// The CudaResult of `call`, which answers a cudaError_t or a CUresult.
#define BASCULE_CUDA_RESULT(call)                                                          \
  ::bascule::kernels::cuda::CudaResult {                                                   \
    static_cast<int>(call), #call, ::bascule::kernels::cuda::file_name(__FILE__), __LINE__ \
  }
// Returns early with the CudaResult of a call that failed.
#define BASCULE_CUDA_CHECK(call)                                                                               \
  do {                                                                                                         \
    if (::bascule::kernels::cuda::CudaResult bascule_result = BASCULE_CUDA_RESULT(call); !bascule_result.ok()) \
      return bascule_result;                                                                                   \
  } while (false)
// The same for what answers a CudaResult.
#define BASCULE_CUDA_PASS(expression)                                                             \
  do {                                                                                            \
    if (::bascule::kernels::cuda::CudaResult bascule_result = (expression); !bascule_result.ok()) \
      return bascule_result;                                                                      \
  } while (false)
