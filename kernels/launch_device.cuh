// How kernels of blocks that take tiles are launched. What counts is what the launch itself answers: cudaGetLastError()
// behind it would find an error that the user's own code left, and clear it.
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
