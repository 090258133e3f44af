#include <cfloat>

#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/row_scan.cuh>
#include <bascule/trainer_ref/ops/token_scores.h>

namespace bascule::ref::ops {
namespace {

// Sums over some of a row's logits, all as multiples of exp(largest): Σ exp x and Σ x exp x.
struct Sums {
  float largest, powers, weighted;

  __device__ static Sums of_none() { return {-FLT_MAX, 0, 0}; }

  __device__ void add(float x) {
    if (x > largest) scale_to(x);
    const float power = __expf(x - largest);
    powers += power;
    weighted += x * power;
  }
  __device__ void add(Sums other) {
    if (other.largest > largest)
      scale_to(other.largest);
    else
      other.scale_to(largest);
    powers += other.powers;
    weighted += other.weighted;
  }

  __device__ void scale_to(float to) {
    const float factor = __expf(largest - to);
    powers *= factor;
    weighted *= factor;
    largest = to;
  }
};

__device__ Sums sum_of_warp(Sums sums) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    Sums other;
    other.largest = __shfl_xor_sync(0xffffffffU, sums.largest, lanes);
    other.powers = __shfl_xor_sync(0xffffffffU, sums.powers, lanes);
    other.weighted = __shfl_xor_sync(0xffffffffU, sums.weighted, lanes);
    sums.add(other);
  }
  return sums;
}

// One block per row, which reads it once.
template <typename T>
__global__ void __launch_bounds__(RowScan::kThreads)
    score_kernel(TokenScores out, const T* logits, const std::int64_t* targets, int vocabulary) {
  __shared__ Sums of_warp[RowScan::kWarps];
  const std::size_t n = blockIdx.x;
  const T* row = logits + n * static_cast<std::size_t>(vocabulary);
  Sums sums = Sums::of_none();
  RowScan::over(row, vocabulary).each(row, vocabulary, [&](int, float x) { sums.add(x); });
  sums = sum_of_warp(sums);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < RowScan::kWarps; ++warp) sums.add(of_warp[warp]);
  const float log_sum = sums.largest + logf(sums.powers);
  out.log_sum[n] = log_sum;
  out.log_prob[n] = to_float(row[targets[n]]) - log_sum;
  out.entropy[n] = log_sum - sums.weighted / sums.powers;
}

constexpr unsigned kThreads = 256;

// A thread takes 16 bytes, or as many elements one by one if rows are not aligned; a row of blocks takes a token.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    differentiate_kernel(T* logits, const std::int64_t* targets, const float* log_sums, const float* weights,
                         int vocabulary) {
  constexpr int W = kWidth<T>;
  const std::size_t n = blockIdx.x;
  T* const row = logits + n * static_cast<std::size_t>(vocabulary);
  const int begin = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * W;
  if (begin >= vocabulary) return;
  const int target = static_cast<int>(targets[n]);
  const float log_sum = log_sums[n], weight = weights[n];
  const auto gradient = [&](int i, float x) { return weight * ((i == target ? 1.0f : 0.0f) - __expf(x - log_sum)); };
  if (vocabulary % W == 0) {  // then every row is aligned, since the first is
    float x[W];
    load(row + begin, x);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = gradient(begin + j, x[j]);
    store(row + begin, x);
  } else {
    for (int i = begin; i < min(begin + W, vocabulary); ++i) row[i] = from_float<T>(gradient(i, to_float(row[i])));
  }
}

}  // namespace

CudaResult score_tokens(const TokenScores& out, const void* logits, DType dtype, const std::int64_t* targets,
                        std::int64_t rows, std::int64_t vocabulary, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    return BASCULE_CUDA_RESULT(launch(&score_kernel<T>, dim3(static_cast<unsigned>(rows)), RowScan::kThreads, 0, stream,
                                      out, static_cast<const T*>(logits), targets, static_cast<int>(vocabulary)));
  });
}

CudaResult differentiate_scores(void* logits, DType dtype, const std::int64_t* targets, const float* log_sums,
                                const float* weights, std::int64_t rows, std::int64_t vocabulary, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    const auto vectors = static_cast<unsigned>((vocabulary + kWidth<T> - 1) / kWidth<T>);
    const dim3 blocks(static_cast<unsigned>(rows), (vectors + kThreads - 1) / kThreads);
    return BASCULE_CUDA_RESULT(launch(&differentiate_kernel<T>, blocks, kThreads, 0, stream, static_cast<T*>(logits),
                                      targets, log_sums, weights, static_cast<int>(vocabulary)));
  });
}

}  // namespace bascule::ref::ops
