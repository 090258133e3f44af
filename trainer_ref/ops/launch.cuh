// How kernels are launched here. Only the launch's own result counts: a cudaGetLastError() after it would find an error
// that other code left, and clear it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <utility>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>

namespace bascule::ref::ops {

using kernels::cuda::CudaResult;
using kernels::cuda::Stream;

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, std::size_t shared_bytes,
                   Stream stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// Calls `with` with a value of the elements' type: float or __nv_bfloat16.
template <typename With>
CudaResult for_type(DType dtype, const With& with) {
  if (dtype == DType::kF32) return with(float{});
  if (dtype == DType::kBF16) return with(__nv_bfloat16{});
  return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
}

}  // namespace bascule::ref::ops
