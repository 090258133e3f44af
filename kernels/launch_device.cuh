// Launches kernels whose blocks take tiles. Errors come only from the launch's own result: a cudaGetLastError() after
// it could find, and clear, an error that the user's code left.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/digest_device.cuh>

namespace bascule::inline v0::kernels::cuda {

template <typename... Parameters, typename... Arguments>
cudaError_t launch_tiles(void (*kernel)(Parameters...), std::uint64_t blocks, Stream stream, Arguments&&... arguments) {
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(blocks));
  launch.blockDim = dim3(kThreads);
  launch.stream = stream;
  return cudaLaunchKernelEx(&launch, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace bascule::inline v0::kernels::cuda
