#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/real.cuh>
#include <bascule/trainer_ref/ops/rotate.h>

namespace bascule::ref::ops {
namespace {

constexpr unsigned kWarps = 4;  // of a block

template <typename T>
__global__ void make_turns_kernel(float2* turns, const std::int64_t* positions, const float* frequencies,
                                  std::int64_t count, int half) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sine = 0, cosine = 0;
  sincosf(static_cast<float>(positions[i / half]) * frequencies[i % half], &sine, &cosine);
  turns[i] = {rounded<T>(cosine), rounded<T>(sine)};
}

// One warp per head of a token; a lane takes the pairs (i, i + D/2), i = lane, lane + 32.
template <typename T>
__global__ void __launch_bounds__(32 * kWarps) rotate_kernel(T* query, PagedCache cache, RotateInput input) {
  constexpr int kPairs = kMostWidth / 64;
  const int width = cache.width, half = width / 2;
  const int all = input.heads + 2 * cache.heads;
  const std::int64_t task = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (task >= input.tokens * all) return;
  const std::int64_t n = task / all;
  const int head = static_cast<int>(task % all), lane = static_cast<int>(threadIdx.x % 32);
  const bool is_query = head < input.heads, is_value = head >= input.heads + cache.heads;

  const T* const from = static_cast<const T*>(input.query_key_value) + task * width;
  const T* const update = input.update == nullptr ? nullptr : static_cast<const T*>(input.update) + task * width;
  float low[kPairs] = {}, high[kPairs] = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    if (const int i = lane + 32 * j; i < half) {
      low[j] = to_float(from[i]);
      high[j] = to_float(from[i + half]);
      if (update == nullptr) continue;
      low[j] = rounded<T>(low[j] + to_float(update[i]));
      high[j] = rounded<T>(high[j] + to_float(update[i + half]));
    }
  }
  const T* const norm = static_cast<const T*>(is_query ? input.query_norm : is_value ? nullptr : input.key_norm);
  if (norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) squares += low[j] * low[j] + high[j] * high[j];
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(width) + input.epsilon);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (const int i = lane + 32 * j; i < half) {
        low[j] = rounded<T>(to_float(norm[i]) * rounded<T>(low[j] * scale));
        high[j] = rounded<T>(to_float(norm[i + half]) * rounded<T>(high[j] * scale));
      }
    }
  }
  T* const to = is_query ? query + (n * input.heads + head) * width
                         : static_cast<T*>(is_value ? cache.values : cache.keys) +
                               offset_in(cache, input.places[n], (head - input.heads) % cache.heads);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    const float2 turn = is_value ? float2{1, 0} : reinterpret_cast<const float2*>(input.turns)[n * half + i];
    to[i] = from_float<T>(low[j] * turn.x - high[j] * turn.y);
    to[i + half] = from_float<T>(high[j] * turn.x + low[j] * turn.y);
  }
}

}  // namespace

CudaResult make_turns(float* turns, const std::int64_t* positions, const float* frequencies, std::int64_t tokens,
                      int width, DType dtype, Stream stream) {
  constexpr unsigned kThreads = 256;
  return for_type(dtype, [&]<typename T>(T) {
    const std::int64_t count = tokens * (width / 2);
    const dim3 blocks(static_cast<unsigned>((count + kThreads - 1) / kThreads));
    return BASCULE_CUDA_RESULT(launch(&make_turns_kernel<T>, blocks, kThreads, 0, stream,
                                      reinterpret_cast<float2*>(turns), positions, frequencies, count, width / 2));
  });
}

CudaResult rotate(void* query, const PagedCache& cache, const RotateInput& input, Stream stream) {
  return for_type(cache.dtype, [&]<typename T>(T) {
    const auto tasks = static_cast<unsigned>(input.tokens * (input.heads + 2 * cache.heads));
    return BASCULE_CUDA_RESULT(launch(&rotate_kernel<T>, dim3((tasks + kWarps - 1) / kWarps), 32 * kWarps, 0, stream,
                                      static_cast<T*>(query), cache, input));
  });
}

}  // namespace bascule::ref::ops
