#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/paged_attention.h>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 4;          // keys that a stream has in progress
constexpr float kNothing = -1e30F;  // below every score: no key yet
constexpr float kLog2E = 1.4426950408889634F;

// Online softmax (Milakov and Gimelshein 2018): the highest score, the sum of weights relative to it.
struct Softmax {
  float highest, total;
};

// A block of threads for one token, one key head with its query heads, and one split of the context. The block's
// threads are streams of kMost / kWidth lanes; each stream takes every kStreams-th key, a lane 16 bytes of it. kMost is
// D, or the next larger size.
template <typename T, int kMost, int kShared>
__global__ void __launch_bounds__(kThreads)
    token_attention_kernel(T* out, PagedCache cache, AttentionInput input, float* partial, int splits) {
  constexpr int W = kWidth<T>, kLanes = kMost / W, kStreams = kThreads / kLanes;
  const int n = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, stream = static_cast<int>(threadIdx.x) / kLanes;
  const int shared = input.heads / cache.heads, first_head = key_head * shared, width = cache.width;
  const bool active = lane * W < width;
  const int context = input.context_of[n];
  const int step = kStreams * kAtOnce;
  const int chunk = ((context + splits - 1) / splits + step - 1) / step * step;
  const int begin = split * chunk, end = min(begin + chunk, context);
  const std::int32_t* const pages =
      input.pages + static_cast<std::int64_t>(input.row_of != nullptr ? input.row_of[n] : n) * input.pages_per_row;

  float query[kShared][W], sum[kShared][W] = {};
  Softmax softmax[kShared];
#pragma unroll
  for (int h = 0; h < kShared; ++h) softmax[h] = {kNothing, 0};
#pragma unroll
  for (int h = 0; h < kShared; ++h) {
    const bool present = active && h < shared;
    if (present)
      load(static_cast<const T*>(input.query) + (static_cast<std::int64_t>(n) * input.heads + first_head + h) * width +
               lane * W,
           query[h]);
#pragma unroll
    for (int i = 0; i < W; ++i) query[h][i] = present ? query[h][i] * input.scale * kLog2E : 0;
  }

  // All lanes of a warp iterate equally often: they shuffle together.
  for (int base = begin; base < end; base += step) {
    uint4 key[kAtOnce], value[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int t = min(base + u * kStreams + stream, end - 1);
      const std::size_t at =
          offset_in(cache, std::int64_t{pages[t / kPageTokens]} * kPageTokens + t % kPageTokens, key_head) +
          static_cast<std::size_t>(active ? lane * W : 0);
      key[u] = *reinterpret_cast<const uint4*>(static_cast<const T*>(cache.keys) + at);
      value[u] = *reinterpret_cast<const uint4*>(static_cast<const T*>(cache.values) + at);
    }
    float score[kShared][kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float k[W];
      unpack(key[u], k);
#pragma unroll
      for (int h = 0; h < kShared; ++h) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < W; ++i) dot += query[h][i] * k[i];
#pragma unroll
        for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) dot += __shfl_xor_sync(0xffffffffU, dot, lanes);
        score[h][u] = base + u * kStreams + stream < end ? dot : kNothing;
      }
    }
#pragma unroll
    for (int h = 0; h < kShared; ++h) {
      float highest = softmax[h].highest;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) highest = fmaxf(highest, score[h][u]);
      const float shrink = exp2f(softmax[h].highest - highest);
      softmax[h].highest = highest;
      softmax[h].total *= shrink;
#pragma unroll
      for (int i = 0; i < W; ++i) sum[h][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        score[h][u] = score[h][u] == kNothing ? 0 : exp2f(score[h][u] - highest);
        softmax[h].total += score[h][u];
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float v[W];
      unpack(value[u], v);
#pragma unroll
      for (int h = 0; h < kShared; ++h)
#pragma unroll
        for (int i = 0; i < W; ++i) sum[h][i] += score[h][u] * v[i];
    }
  }

  // Merges the streams' results.
  __shared__ Softmax of_stream[kShared][kStreams];
  __shared__ float sums[kShared][kStreams][kMost];
  if (lane == 0) {
#pragma unroll
    for (int h = 0; h < kShared; ++h) of_stream[h][stream] = softmax[h];
  }
  __syncthreads();
  Softmax whole[kShared];
#pragma unroll
  for (int h = 0; h < kShared; ++h) {
    whole[h] = {kNothing, 0};
    for (int s = 0; s < kStreams; ++s) whole[h].highest = fmaxf(whole[h].highest, of_stream[h][s].highest);
    for (int s = 0; s < kStreams; ++s)
      whole[h].total += of_stream[h][s].total * exp2f(of_stream[h][s].highest - whole[h].highest);
    const float shrink = exp2f(softmax[h].highest - whole[h].highest);
#pragma unroll
    for (int i = 0; i < W; ++i) sums[h][stream][lane * W + i] = sum[h][i] * shrink;
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < kShared; ++h) {
    if (h >= shared) break;
    const std::int64_t head = static_cast<std::int64_t>(n) * input.heads + first_head + h;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
      float all = 0;
      for (int s = 0; s < kStreams; ++s) all += sums[h][s][i];
      if (splits == 1) {
        out[head * width + i] = from_float<T>(all / whole[h].total);
      } else {
        float* const to = partial + (head * splits + split) * (width + 2);
        to[i] = all;
        if (i == 0) {
          to[width] = whole[h].highest;
          to[width + 1] = whole[h].total;
        }
      }
    }
  }
}

// A block of threads for one head of one token, one thread per element.
template <typename T>
__global__ void __launch_bounds__(kMostWidth) join_splits_kernel(T* out, const float* partial, int width, int splits) {
  const std::int64_t head = blockIdx.x;
  const int i = static_cast<int>(threadIdx.x);
  const float* const from = partial + head * splits * (width + 2);
  float highest = kNothing, total = 0, sum = 0;
  for (int s = 0; s < splits; ++s) highest = fmaxf(highest, from[s * (width + 2) + width]);
  for (int s = 0; s < splits; ++s) {
    const float weight = exp2f(from[s * (width + 2) + width] - highest);
    total += weight * from[s * (width + 2) + width + 1];
    sum += weight * from[s * (width + 2) + i];
  }
  out[head * width + i] = from_float<T>(sum / total);
}

template <typename T, int kMost>
CudaResult attend(T* out, const PagedCache& cache, const AttentionInput& input, int splits, float* partial,
                  Stream stream) {
  const int shared = input.heads / cache.heads;
  const auto kernel = shared <= 2   ? &token_attention_kernel<T, kMost, 2>
                      : shared <= 4 ? &token_attention_kernel<T, kMost, 4>
                                    : &token_attention_kernel<T, kMost, kMostShared>;
  const dim3 blocks(static_cast<unsigned>(input.tokens), static_cast<unsigned>(cache.heads),
                    static_cast<unsigned>(splits));
  BASCULE_CUDA_CHECK(launch(kernel, blocks, kThreads, 0, stream, out, cache, input, partial, splits));
  if (splits == 1) return {};
  const auto heads = static_cast<unsigned>(input.tokens * input.heads);
  return BASCULE_CUDA_RESULT(launch(&join_splits_kernel<T>, dim3(heads), static_cast<unsigned>(cache.width), 0, stream,
                                    out, static_cast<const float*>(partial), cache.width, splits));
}

}  // namespace

CudaResult token_attention(void* out, const PagedCache& cache, const AttentionInput& input, int splits, float* partial,
                           Stream stream) {
  return for_type(cache.dtype, [&]<typename T>(T) {
    const auto attend_in = cache.width <= 32   ? &attend<T, 32>
                           : cache.width <= 64 ? &attend<T, 64>
                                               : &attend<T, kMostWidth>;
    return attend_in(static_cast<T*>(out), cache, input, splits, partial, stream);
  });
}

}  // namespace bascule::ref::ops
