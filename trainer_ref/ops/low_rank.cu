#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/low_rank.h>
#include <bascule/trainer_ref/ops/mma.cuh>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRun = 8;              // elements that a lane reads at a time
constexpr int kSplit = 32 * kWarps;  // elements of x in a block
constexpr int kRows = 16;            // of A in a block, the height of the tensor cores' tile
constexpr int kExpanded = 128;       // rows of B in a block

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

// The same as pairs of bfloat16, or zeros.
template <typename T>
__device__ inline uint4 load_pairs(const T* from, bool present, bool aligned) {
  if (!present) return {};
  if constexpr (sizeof(T) == 2)
    if (aligned) return *reinterpret_cast<const uint4*>(from);
  float x[kRun];
  load_run(from, aligned, x);
  return pack(x);
}

// Where a block of shrink works: rows [row, row + kRows) of one part of one tile, and of x the elements [k, k_end).
struct Shrunk {
  LowRankFactors factors;
  int part, row, k, k_end;
  std::size_t in;

  __device__ Shrunk(const LowRankProduct& product, const AdapterTile& tile) {
    const int blocks = (product.rank + kRows - 1) / kRows;  // of a part
    part = static_cast<int>(blockIdx.y) / blocks;
    row = static_cast<int>(blockIdx.y) % blocks * kRows;
    in = static_cast<std::size_t>(product.in);
    k = static_cast<int>(blockIdx.z) * kSplit;
    k_end = gridDim.z == 1 ? static_cast<int>(product.in) : min(k + kSplit, static_cast<int>(product.in));
    factors = tile.factors[product.first + part];
  }
};

// Of `low`, [tiles][parts][splits][rank, in whole kRows][kTileRows]: what begins at one split of a part of a tile.
__device__ inline std::size_t place_of(const LowRankProduct& product, std::size_t tile, int part, int splits,
                                       int split) {
  const std::size_t rows = static_cast<std::size_t>((product.rank + kRows - 1) / kRows * kRows);
  return ((tile * static_cast<std::size_t>(product.parts) + static_cast<std::size_t>(part)) *
              static_cast<std::size_t>(splits) +
          static_cast<std::size_t>(split)) *
         rows * kTileRows;
}

// Brings a share of B nearer, for expand().
__device__ inline void prefetch_b(const LowRankProduct& product, const Shrunk& at) {
  constexpr std::size_t kLine = 128;
  const std::size_t bytes = static_cast<std::size_t>(product.out[at.part]) * static_cast<std::size_t>(at.factors.rank) *
                            (at.factors.dtype == DType::kF32 ? 4 : 2);
  const std::size_t step = gridDim.z * kThreads * kLine;
  for (std::size_t i = (blockIdx.z * kThreads + threadIdx.x) * kLine; i < bytes; i += step)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(at.factors.b) + i));
}

// [kRows, kTileRows] by the tensor cores, of this warp's 32 elements of x. A lane reads eight elements of a row at
// once; which of them the instruction takes together does not matter, as long as it is the same for A and x.
template <typename Factor>
__device__ inline void multiply(const Shrunk& at, const __nv_bfloat16* x, const AdapterTile& tile, float (&sum)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32), group = lane / 4;
  const auto* const a = static_cast<const Factor*>(at.factors.a);
  const bool aligned = is_aligned(a);
  const int k = at.k + static_cast<int>(threadIdx.x / 32) * 32 + lane % 4 * kRun;
  const bool inside = k < at.k_end;
  const Factor* const low = a + static_cast<std::size_t>(at.row + group) * at.in + k;
  const bool has_x = inside && group < tile.count;
  const uint4 first = load_pairs(low, inside && at.row + group < at.factors.rank, aligned);
  const uint4 second = load_pairs(low + 8 * at.in, inside && at.row + group + 8 < at.factors.rank, aligned);
  const uint4 with =
      load_pairs(x + (has_x ? static_cast<std::size_t>(tile.tokens[group]) * at.in : 0) + k, has_x, true);
  multiply_add(sum, {first.x, second.x, first.y, second.y}, with.x, with.y);
  multiply_add(sum, {first.z, second.z, first.w, second.w}, with.z, with.w);
}

// blockIdx.x is the tile, blockIdx.z the split of x.
__global__ void __launch_bounds__(kThreads)
    shrink_kernel(float* low, const __nv_bfloat16* x, const LowRankProduct product) {
  __shared__ float sums[kWarps][kRows * kTileRows];
  const AdapterTile& tile = product.tiles[blockIdx.x];
  if (tile.count == 0 || tile.factors == nullptr) return;
  const Shrunk at(product, tile);
  if (at.row >= at.factors.rank) return;
  float sum[4] = {};
  if (at.factors.dtype == DType::kF32) {
    multiply<float>(at, x, tile, sum);
  } else {
    multiply<__nv_bfloat16>(at, x, tile, sum);
  }
  const bool is_first = blockIdx.x == 0 || product.tiles[blockIdx.x - 1].factors != tile.factors;
  if (at.row == 0 && is_first) prefetch_b(product, at);
  const int lane = static_cast<int>(threadIdx.x % 32), place = lane / 4 * kTileRows + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[threadIdx.x / 32][place + i / 2 * 8 * kTileRows + i % 2] = sum[i];
  __syncthreads();
  if (threadIdx.x >= kRows * kTileRows) return;
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp][threadIdx.x];
  const auto splits = static_cast<int>(gridDim.z);
  low[place_of(product, blockIdx.x, at.part, splits, static_cast<int>(blockIdx.z)) +
      static_cast<std::size_t>(at.row) * kTileRows + threadIdx.x] = total;
}

// The sums of one row of A with the tile's tokens, over the warp.
template <typename Factor>
__device__ inline void shrink_row(const Factor* a, const float* x, const AdapterTile& tile, std::size_t in,
                                  float (&sums)[kTileRows]) {
  const bool aligned = is_aligned(a);
  for (std::size_t k = threadIdx.x % 32 * kRun; k < in; k += 32 * kRun) {
    float factor[kRun];
    load_run(a + k, aligned, factor);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      float values[kRun] = {};
      if (i < tile.count) load_run(x + static_cast<std::size_t>(tile.tokens[i]) * in + k, true, values);
#pragma unroll
      for (int e = 0; e < kRun; ++e) sums[i] += factor[e] * values[e];
    }
  }
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) sums[i] = warp_sum(sums[i]);
}

// float32 without rounding: a warp takes every kWarps-th row of the block's, and all of x.
__global__ void __launch_bounds__(kThreads) shrink_kernel(float* low, const float* x, const LowRankProduct product) {
  const AdapterTile& tile = product.tiles[blockIdx.x];
  if (tile.count == 0 || tile.factors == nullptr) return;
  const Shrunk at(product, tile);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int row = at.row + static_cast<int>(threadIdx.x / 32); row < min(at.row + kRows, at.factors.rank);
       row += kWarps) {
    float sums[kTileRows] = {};
    const std::size_t begin = static_cast<std::size_t>(row) * at.in;
    if (at.factors.dtype == DType::kF32) {
      shrink_row(static_cast<const float*>(at.factors.a) + begin, x, tile, at.in, sums);
    } else {
      shrink_row(static_cast<const __nv_bfloat16*>(at.factors.a) + begin, x, tile, at.in, sums);
    }
    float* const to = low + place_of(product, blockIdx.x, at.part, 1, 0) + static_cast<std::size_t>(row) * kTileRows;
#pragma unroll
    for (int i = 0; i < kTileRows; ++i)
      if (lane == i) to[i] = sums[i];
  }
}

// The sums of one row of B, if `present`, with the tile's `low`, which the block brings to `shared` [rank][kTileRows]
// from its `splits`. The row's first elements are on their way meanwhile.
template <typename Factor>
__device__ inline void expand_row(const Factor* b, bool present, const float* low, float* shared, int rank, int splits,
                                  std::size_t split_floats, float (&sums)[kTileRows]) {
  constexpr int kHead = 2 * kRun;
  const bool aligned = is_aligned(b);
  float head[2][kRun] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (present && rank >= kHead) load_run(b + r * kRun, aligned, head[r]);
  for (int i = static_cast<int>(threadIdx.x); i < rank * kTileRows; i += kExpanded) {
    float sum = 0;
#pragma unroll 4
    for (int split = 0; split < splits; ++split) sum += low[static_cast<std::size_t>(split) * split_floats + i];
    shared[i] = sum;
  }
  __syncthreads();
  if (!present) return;
  int j = 0;
  for (; rank >= kHead && j < kHead; ++j)
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) sums[i] += head[j / kRun][j % kRun] * shared[j * kTileRows + i];
  for (; j + kRun <= rank; j += kRun) {
    float factor[kRun];
    load_run(b + j, aligned, factor);
#pragma unroll
    for (int e = 0; e < kRun; ++e)
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) sums[i] += factor[e] * shared[(j + e) * kTileRows + i];
  }
  for (; j < rank; ++j)
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) sums[i] += to_float(b[j]) * shared[j * kTileRows + i];
}

// A thread takes one row of B of one part; blockIdx.y is the tile.
template <typename T>
__global__ void __launch_bounds__(kExpanded)
    expand_kernel(T* update, const float* low, const LowRankProduct product, int splits) {
  extern __shared__ float tile_low[];
  const AdapterTile& tile = product.tiles[blockIdx.y];
  if (tile.count == 0) return;
  int block = static_cast<int>(blockIdx.x), part = 0, begin = 0;
  while (block * kExpanded >= product.out[part]) {
    block -= (product.out[part] + kExpanded - 1) / kExpanded;
    begin += product.out[part++];
  }
  const LowRankFactors factors = tile.factors == nullptr ? LowRankFactors{} : tile.factors[product.first + part];
  const int o = block * kExpanded + static_cast<int>(threadIdx.x);
  const bool present = o < product.out[part];
  float sums[kTileRows] = {};
  const float* const from = low + place_of(product, blockIdx.y, part, splits, 0);
  const std::size_t split_floats = place_of(product, 0, 0, 1, 1);
  const std::size_t row = static_cast<std::size_t>(o) * static_cast<std::size_t>(factors.rank);
  if (factors.rank > 0) {
    if (factors.dtype == DType::kF32) {
      expand_row(static_cast<const float*>(factors.b) + row, present, from, tile_low, factors.rank, splits,
                 split_floats, sums);
    } else {
      expand_row(static_cast<const __nv_bfloat16*>(factors.b) + row, present, from, tile_low, factors.rank, splits,
                 split_floats, sums);
    }
  }
  const auto width = static_cast<std::size_t>(product.out[0] + product.out[1] + product.out[2]);
  T* const column = update + begin + o;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
    if (present && i < tile.count)
      column[static_cast<std::size_t>(tile.tokens[i]) * width] = from_float<T>(factors.scale * sums[i]);
}

int splits_of(const LowRankProduct& product, DType dtype) {
  return dtype == DType::kF32 ? 1 : static_cast<int>((product.in + kSplit - 1) / kSplit);
}

}  // namespace

std::int64_t low_floats(const LowRankProduct& product, DType dtype) {
  return product.tile_count * kTileRows * product.parts * splits_of(product, dtype) *
         ((product.rank + kRows - 1) / kRows * kRows);
}

CudaResult shrink(float* low, const void* x, DType dtype, const LowRankProduct& product, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    const int rows = product.parts * ((product.rank + kRows - 1) / kRows);
    const dim3 blocks(static_cast<unsigned>(product.tile_count), static_cast<unsigned>(rows),
                      static_cast<unsigned>(splits_of(product, dtype)));
    void (*const kernel)(float*, const T*, LowRankProduct) = &shrink_kernel;
    return BASCULE_CUDA_RESULT(launch(kernel, blocks, kThreads, 0, stream, low, static_cast<const T*>(x), product));
  });
}

CudaResult expand(void* update, const float* low, DType dtype, const LowRankProduct& product, Stream stream) {
  return for_type(dtype, [&]<typename T>(T) {
    int count = 0;
    for (const int out : product.out) count += (out + kExpanded - 1) / kExpanded;
    const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(product.tile_count));
    const std::size_t shared = sizeof(float) * kTileRows * static_cast<std::size_t>(product.rank);
    return BASCULE_CUDA_RESULT(launch(&expand_kernel<T>, blocks, kExpanded, shared, stream, static_cast<T*>(update),
                                      low, product, splits_of(product, dtype)));
  });
}

}  // namespace bascule::ref::ops
