#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/real.cuh>
#include <bascule/trainer_ref/ops/silu_mul.h>

namespace bascule::ref::ops {
namespace {

constexpr unsigned kThreads = 256;

// A thread takes 16 bytes of `out`; a column of blocks takes a token.
template <typename T>
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(T* out, const T* gate_up, const T* update, int inner) {
  constexpr int W = kWidth<T>;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * W;
  if (i >= inner) return;
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(inner);
  float gate[W], up[W];
  load(gate_up + 2 * row + i, gate);
  load(gate_up + 2 * row + inner + i, up);
  if (update != nullptr) {
    add_rounded(gate, update + 2 * row + i);
    add_rounded(up, update + 2 * row + inner + i);
  }
#pragma unroll
  for (int j = 0; j < W; ++j) gate[j] = rounded<T>(gate[j] / (1 + __expf(-gate[j]))) * up[j];
  store(out + row + i, gate);
}

}  // namespace

CudaResult silu_mul(void* out, const void* gate_up, const void* update, DType dtype, std::int64_t tokens,
                    std::int64_t inner, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    const auto vectors = static_cast<unsigned>(inner / kWidth<T>);
    const dim3 blocks(static_cast<unsigned>(tokens), (vectors + kThreads - 1) / kThreads);
    return BASCULE_CUDA_RESULT(launch(&silu_mul_kernel<T>, blocks, kThreads, 0, stream, static_cast<T*>(out),
                                      static_cast<const T*>(gate_up), static_cast<const T*>(update),
                                      static_cast<int>(inner)));
  });
}

}  // namespace bascule::ref::ops
