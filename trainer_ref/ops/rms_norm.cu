#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/real.cuh>
#include <bascule/trainer_ref/ops/rms_norm.h>

namespace bascule::ref::ops {
namespace {

constexpr int kMostThreads = 512;

__device__ float block_sum(float x) {
  __shared__ float sums[kMostThreads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0);
}

// One block per token.
template <typename T, bool kAdds>
__global__ void __launch_bounds__(kMostThreads) rms_norm_kernel(T* out, T* residual, const T* added, const T* update,
                                                                const T* weight, int channels, float epsilon) {
  constexpr int W = kWidth<T>;
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(channels);
  const int first = static_cast<int>(threadIdx.x) * W, step = static_cast<int>(blockDim.x) * W;
  float squares = 0;
  for (int c = first; c < channels; c += step) {
    float x[W];
    load(residual + row + c, x);
    if constexpr (kAdds) {
      float y[W];
      load(added + row + c, y);
      if (update != nullptr) add_rounded(y, update + row + c);
#pragma unroll
      for (int i = 0; i < W; ++i) x[i] = rounded<T>(x[i] + y[i]);
      store(residual + row + c, x);
    }
#pragma unroll
    for (int i = 0; i < W; ++i) squares += x[i] * x[i];
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(channels) + epsilon);
  for (int c = first; c < channels; c += step) {  // what this thread itself stored
    float x[W], w[W];
    load(residual + row + c, x);
    load(weight + c, w);
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = w[i] * rounded<T>(x[i] * scale);
    store(out + row + c, x);
  }
}

}  // namespace

CudaResult rms_norm(void* out, void* residual, const void* added, const void* update, const void* weight, DType dtype,
                    std::int64_t tokens, std::int64_t channels, float epsilon, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    const auto vectors = static_cast<unsigned>(channels / kWidth<T>);
    const unsigned threads = std::min<unsigned>(kMostThreads, (vectors + 31) / 32 * 32);
    const auto kernel = added != nullptr ? &rms_norm_kernel<T, true> : &rms_norm_kernel<T, false>;
    return BASCULE_CUDA_RESULT(launch(kernel, dim3(static_cast<unsigned>(tokens)), threads, 0, stream,
                                      static_cast<T*>(out), static_cast<T*>(residual), static_cast<const T*>(added),
                                      static_cast<const T*>(update), static_cast<const T*>(weight),
                                      static_cast<int>(channels), epsilon));
  });
}

}  // namespace bascule::ref::ops
