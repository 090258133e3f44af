#include <numeric>

#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/low_rank.h>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRun = 8;  // elements that a lane reads at a time

__device__ inline bool is_aligned(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & 15U) == 0;
}

// Factors in a slot are aligned to their elements alone.
template <typename T>
__device__ inline void load_run(const T* from, bool aligned, float (&x)[kRun]) {
  if (!aligned) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) x[i] = to_float(from[i]);
  } else if constexpr (kWidth<T> == kRun) {
    load(from, x);
  } else {
    float low[4], high[4];
    load(from, low);
    load(from + 4, high);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = low[i];
      x[4 + i] = high[i];
    }
  }
}

// The sums of one row of A with the tile's tokens, over the warp.
template <typename Factor, typename T>
__device__ inline void shrink_row(const Factor* a, const T* x, const AdapterTile& tile, int in, int lane,
                                  float (&sums)[kTileRows]) {
  const bool aligned = is_aligned(a);
  for (int k = lane * kRun; k < in; k += 32 * kRun) {
    float factor[kRun];
    load_run(a + k, aligned, factor);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      if (i >= tile.count) break;
      float values[kRun];
      load_run(x + static_cast<std::size_t>(tile.tokens[i]) * static_cast<std::size_t>(in) + k, true, values);
#pragma unroll
      for (int e = 0; e < kRun; ++e) sums[i] += factor[e] * values[e];
    }
  }
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
    if (i < tile.count) sums[i] = warp_sum(sums[i]);
}

// A warp takes one row of A of one part; blockIdx.x is the tile.
template <typename T>
__global__ void __launch_bounds__(kThreads) shrink_kernel(float* low, const T* x, const LowRankProduct product) {
  const AdapterTile& tile = product.tiles[blockIdx.x];
  const int row = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int part = row / product.rank, j = row % product.rank;
  if (tile.count == 0 || part >= product.parts) return;
  const LowRankFactors factors = tile.factors[product.first + part];
  if (j >= factors.rank) return;
  const int in = static_cast<int>(product.in);
  float sums[kTileRows] = {};
  const std::size_t begin = static_cast<std::size_t>(j) * static_cast<std::size_t>(in);
  if (factors.dtype == DType::kF32) {
    shrink_row(static_cast<const float*>(factors.a) + begin, x, tile, in, lane, sums);
  } else {
    shrink_row(static_cast<const __nv_bfloat16*>(factors.a) + begin, x, tile, in, lane, sums);
  }
  float mine = 0;  // of token `lane`
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
    if (lane == i) mine = sums[i];
  if (lane < tile.count)
    low[((static_cast<std::size_t>(blockIdx.x) * kTileRows + static_cast<std::size_t>(lane)) *
             static_cast<std::size_t>(product.parts) +
         static_cast<std::size_t>(part)) *
            static_cast<std::size_t>(product.rank) +
        static_cast<std::size_t>(j)] = mine;
}

// The sums of one row of B with the tile's `low`, in shared memory as [rank][kTileRows].
template <typename Factor>
__device__ inline void expand_row(const Factor* b, const float* low, int rank, float (&sums)[kTileRows]) {
  int j = 0;
  for (const bool aligned = is_aligned(b); j + kRun <= rank; j += kRun) {
    float factor[kRun];
    load_run(b + j, aligned, factor);
#pragma unroll
    for (int e = 0; e < kRun; ++e)
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) sums[i] += factor[e] * low[(j + e) * kTileRows + i];
  }
  for (; j < rank; ++j)
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) sums[i] += to_float(b[j]) * low[j * kTileRows + i];
}

// A thread takes one row of B of one part; blockIdx.y is the tile.
template <typename T>
__global__ void __launch_bounds__(kThreads) expand_kernel(T* y, const float* low, const LowRankProduct product) {
  extern __shared__ float tile_low[];  // [rank][kTileRows]
  const AdapterTile& tile = product.tiles[blockIdx.y];
  if (tile.count == 0) return;
  int block = static_cast<int>(blockIdx.x), part = 0, begin = 0;
  while (block * kThreads >= product.out[part]) {
    block -= (product.out[part] + kThreads - 1) / kThreads;
    begin += product.out[part++];
  }
  const LowRankFactors factors = tile.factors[product.first + part];
  const int rank = factors.rank, out = product.out[part];
  for (int k = static_cast<int>(threadIdx.x); k < rank * kTileRows; k += kThreads) {
    const int i = k % kTileRows, j = k / kTileRows;
    tile_low[k] = i < tile.count
                      ? low[((static_cast<std::size_t>(blockIdx.y) * kTileRows + static_cast<std::size_t>(i)) *
                                 static_cast<std::size_t>(product.parts) +
                             static_cast<std::size_t>(part)) *
                                static_cast<std::size_t>(product.rank) +
                            static_cast<std::size_t>(j)]
                      : 0;
  }
  __syncthreads();
  const int o = block * kThreads + static_cast<int>(threadIdx.x);
  if (rank == 0 || o >= out) return;
  float sums[kTileRows] = {};
  const std::size_t row = static_cast<std::size_t>(o) * static_cast<std::size_t>(rank);
  if (factors.dtype == DType::kF32) {
    expand_row(static_cast<const float*>(factors.b) + row, tile_low, rank, sums);
  } else {
    expand_row(static_cast<const __nv_bfloat16*>(factors.b) + row, tile_low, rank, sums);
  }
  const int width = product.out[0] + product.out[1] + product.out[2];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    if (i >= tile.count) break;
    T& place = y[static_cast<std::size_t>(tile.tokens[i]) * static_cast<std::size_t>(width) +
                 static_cast<std::size_t>(begin + o)];
    place = from_float<T>(to_float(place) + factors.scale * sums[i]);
  }
}

}  // namespace

CudaResult shrink(float* low, const void* x, DType dtype, const LowRankProduct& product, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    const int rows = product.parts * product.rank;
    const dim3 blocks(static_cast<unsigned>(product.tile_count), static_cast<unsigned>((rows + kWarps - 1) / kWarps));
    return BASCULE_CUDA_RESULT(
        launch(&shrink_kernel<T>, blocks, kThreads, 0, stream, low, static_cast<const T*>(x), product));
  });
}

CudaResult expand(void* y, const float* low, DType dtype, const LowRankProduct& product, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    int count = 0;
    for (const int out : product.out) count += (out + kThreads - 1) / kThreads;
    const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(product.tile_count));
    const std::size_t shared = sizeof(float) * kTileRows * static_cast<std::size_t>(product.rank);
    return BASCULE_CUDA_RESULT(
        launch(&expand_kernel<T>, blocks, kThreads, shared, stream, static_cast<T*>(y), low, product));
  });
}

}  // namespace bascule::ref::ops
