#include <bascule/trainer_ref/ops/adjust_logits.h>
#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

constexpr unsigned kThreads = 512;

// How a token is in the sequence, while its place in `adjusted` does not have its logit yet.
constexpr std::uint32_t kInPrompt = 1, kBiased = 2, kOnce = 4;  // kOnce: added for each time in the completion

// Each operation rounds as the host's does.
__device__ float penalized(float x, std::uint32_t seen, const Adjustment& adjustment) {
  if ((seen & ~kBiased) == 0) return x;
  const auto count = static_cast<float>(seen / kOnce);
  x = x > 0 ? __fdiv_rn(x, adjustment.repetition) : __fmul_rn(x, adjustment.repetition);
  x = __fmaf_rn(-adjustment.frequency, count, x);
  return count > 0 ? __fsub_rn(x, adjustment.presence) : x;
}

// One block per row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    adjust_kernel(std::uint32_t* adjusted, const T* logits, int vocabulary, TokenHistory history,
                  const Adjustment* adjustments, const BiasedToken* biased) {
  const Adjustment adjustment = adjustments[blockIdx.x];
  if (adjustment.row < 0) return;
  std::uint32_t* const words = adjusted + std::size_t{blockIdx.x} * static_cast<std::size_t>(vocabulary);
  const T* const row = logits + static_cast<std::size_t>(adjustment.row) * static_cast<std::size_t>(vocabulary);
  const BiasedToken* const first = biased + adjustment.first_bias;
  const int begin = static_cast<int>(threadIdx.x);

  for (int id = begin; id < vocabulary; id += kThreads) words[id] = 0;
  __syncthreads();
  for (int i = begin; i < adjustment.biases; i += kThreads) atomicOr(&words[first[i].token], kBiased);
  if (adjustment.repetition != 1 || adjustment.presence != 0 || adjustment.frequency != 0) {
    const std::int32_t* const pages = history.pages + adjustment.pages * history.pages_a_row;
    for (int i = begin; i < adjustment.tokens; i += kThreads) {
      const int token = history.tokens[std::int64_t{pages[i / kPageTokens]} * kPageTokens + i % kPageTokens];
      if (i < adjustment.prompt)
        atomicOr(&words[token], kInPrompt);
      else
        atomicAdd(&words[token], kOnce);
    }
  }
  __syncthreads();
  for (int id = begin; id < vocabulary; id += kThreads) {
    const std::uint32_t seen = words[id];
    if ((seen & kBiased) == 0) words[id] = __float_as_uint(penalized(to_float(row[id]), seen, adjustment));
  }
  __syncthreads();
  for (int i = begin; i < adjustment.biases; i += kThreads) {
    const auto [token, bias] = first[i];
    words[token] = __float_as_uint(penalized(__fadd_rn(to_float(row[token]), bias), words[token], adjustment));
  }
}

}  // namespace

CudaResult adjust_logits(float* adjusted, const void* logits, DType dtype, std::int64_t vocabulary,
                         const TokenHistory& history, const Adjustment* adjustments, std::int64_t count,
                         const BiasedToken* biased, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    return BASCULE_CUDA_RESULT(launch(&adjust_kernel<T>, dim3(static_cast<unsigned>(count)), kThreads, 0, stream,
                                      reinterpret_cast<std::uint32_t*>(adjusted), static_cast<const T*>(logits),
                                      static_cast<int>(vocabulary), history, adjustments, biased));
  });
}

}  // namespace bascule::ref::ops
