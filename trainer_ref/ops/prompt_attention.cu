// FlashAttention-2 (Dao 2023) over a paged cache, forward only. A block of four warps takes a tile of 64 queries of one
// head, 16 per warp, and goes over keys and values 64 at a time: values are copied to shared memory while queries are
// multiplied with keys, and the next keys while values are summed.
#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/mma.cuh>
#include <bascule/trainer_ref/ops/paged_attention.h>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

using Real = __nv_bfloat16;

constexpr int kThreads = 128;
constexpr int kKeys = 64;  // per turn
constexpr float kNothing = -1e30F;
constexpr float kLog2E = 1.4426950408889634F;

template <int D>
struct Shared {
  Real query[kTileTokens * D];
  Real key[kKeys * D];
  Real value[kKeys * D];
};

__device__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A number unknown to the compiler, which thus recomputes the addresses that follow from it each turn. That is cheap,
// and saves keeping a hundred of them in registers.
__device__ int unknown(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// Keys or values of tokens [first, first + kKeys) of a sequence, zeros starting at `context`. A thread copies one chunk
// of every kStride-th token, so that it finds a page's address once for all of its tokens in the page.
template <int D>
__device__ void copy_turn(const SharedTile<D>& to, const void* cached, const PagedCache& cache,
                          const std::int32_t* pages, int head, int first, int context) {
  constexpr int kChunks = SharedTile<D>::kChunks, kStride = kThreads / kChunks;
  static_assert(kPageTokens % kStride == 0 && kKeys % kPageTokens == 0);
  const int thread = unknown(static_cast<int>(threadIdx.x)), own = thread / kChunks, chunk = thread % kChunks;
#pragma unroll
  for (int page = 0; page < kKeys / kPageTokens; ++page) {
    const int begin = first + page * kPageTokens;
    const std::size_t at =
        begin < context ? offset_in(cache, std::int64_t{pages[begin / kPageTokens]} * kPageTokens, head) : 0;
    const Real* const from = static_cast<const Real*>(cached) + at + own * D + chunk * 8;
#pragma unroll
    for (int t = 0; t < kPageTokens; t += kStride) {
      const bool present = begin + own + t < context;
      to.copy(page * kPageTokens + own + t, chunk, present ? from + t * D : static_cast<const Real*>(cached), present);
    }
  }
  commit_copies();
}

// Turns with keys that rows of warp `warp` see; 0 if the tile ends before them.
__device__ int own_turns_of(const PromptTile& tile, int warp) {
  const int first = 16 * warp, last = min(first + 16, tile.count) - 1;
  return last < first ? 0 : (tile.position + last) / kKeys + 1;
}

// A warp's share of its 16 queries: a lane has rows lane/4 and lane/4 + 8, two columns in each tile of 8.
template <int D>
struct Rows {
  static constexpr int kDeep = D / 16, kTiles = D / 8, kKeyTiles = kKeys / 8;
  std::uint32_t query[kDeep][4];
  float sum[kTiles][4] = {};  // of values, by their weights
  float highest[2] = {kNothing, kNothing}, total[2] = {0, 0};
  float score[kKeyTiles][4];  // then weights

  __device__ void multiply_keys(const SharedTile<D>& keys, int lane) {
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = 0;
#pragma unroll
    for (int k = 0; k < kDeep; ++k)
#pragma unroll
      for (int j = 0; j < kKeyTiles; j += 2) {
        std::uint32_t b[4];
        load_matrices(b, keys.address(8 * j + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        multiply_add(score[j], query[k], b[0], b[1]);
        multiply_add(score[j + 1], query[k], b[2], b[3]);
      }
  }

  // Hides keys later than a query. The query is at `position` in the lane's first row, the turn's first key at `first`.
  __device__ void hide_later_keys(int first, int position, int lane) {
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (first + 8 * j + 2 * (lane % 4) + i % 2 > position + i / 2 * 8) score[j][i] = kNothing;
  }

  __device__ void weigh(float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = highest[r];
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) top = fmaxf(top, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
      if (__any_sync(0xffffffffU, top > highest[r])) {
        const float shrink = exp2_of((highest[r] - top) * scale);
        highest[r] = top;
        total[r] *= shrink;
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          sum[j][2 * r] *= shrink;
          sum[j][2 * r + 1] *= shrink;
        }
      }
      const float shift = top * scale;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          score[j][i] = exp2_of(score[j][i] * scale - shift);
          total[r] += score[j][i];
        }
    }
  }

  __device__ void add_values(const SharedTile<D>& values, int lane) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const std::uint32_t weights[4] = {
          packed(score[2 * k][0], score[2 * k][1]), packed(score[2 * k][2], score[2 * k][3]),
          packed(score[2 * k + 1][0], score[2 * k + 1][1]), packed(score[2 * k + 1][2], score[2 * k + 1][3])};
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        std::uint32_t b[4];
        load_turned(b, values.address(16 * k + lane % 16, j + lane / 16));
        multiply_add(sum[j], weights, b[0], b[1]);
        multiply_add(sum[j + 1], weights, b[2], b[3]);
      }
    }
  }
};

template <int D>
__global__ void __launch_bounds__(kThreads)
    prompt_attention_kernel(Real* out, PagedCache cache, AttentionInput input, const PromptTile* tiles) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<D>*>(memory);
  const PromptTile tile = tiles[gridDim.x - 1 - blockIdx.x];  // a prompt's later tiles take longer: first
  if (tile.count == 0) return;
  const int head = static_cast<int>(blockIdx.y), key_head = head / (input.heads / cache.heads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t* const pages = input.pages + static_cast<std::int64_t>(tile.row) * input.pages_per_row;
  const int context = tile.position + tile.count;  // of the last token
  const int turns = (context + kKeys - 1) / kKeys;
  const auto row_of = [&](int token) {  // of query and out
    return (static_cast<std::size_t>(tile.begin + token) * static_cast<std::size_t>(input.heads) +
            static_cast<std::size_t>(head)) *
           D;
  };

  const SharedTile<D> queries{shared.query};
  for (int i = static_cast<int>(threadIdx.x); i < kTileTokens * SharedTile<D>::kChunks; i += kThreads) {
    const int token = i / SharedTile<D>::kChunks, chunk = i % SharedTile<D>::kChunks;
    const bool present = token < tile.count;
    queries.copy(
        token, chunk,
        static_cast<const Real*>(input.query) + (present ? row_of(token) + static_cast<std::size_t>(chunk * 8) : 0),
        present);
  }
  const SharedTile<D> keys{shared.key}, values{shared.value};
  copy_turn(keys, cache.keys, cache, pages, key_head, 0, context);

  Rows<D> rows;
  const float scale = input.scale * kLog2E;
  const int first_row = 16 * warp + lane / 4, own_turns = own_turns_of(tile, warp);
  for (int turn = 0; turn < turns; ++turn) {
    const int first = turn * kKeys;
    const bool looks = turn < own_turns;
    const int reader = unknown(lane);
    wait_for_copies<0>();  // of this turn's keys
    __syncthreads();       // the last one's values have been read
    copy_turn(values, cache.values, cache, pages, key_head, first, context);
    if (turn == 0) {
#pragma unroll
      for (int k = 0; k < Rows<D>::kDeep; ++k)
        load_matrices(rows.query[k], queries.address(16 * warp + lane % 16, 2 * k + lane / 16));
    }
    if (looks) {
      rows.multiply_keys(keys, reader);
      if (first + kKeys > tile.position + 16 * warp + 1) rows.hide_later_keys(first, tile.position + first_row, lane);
      rows.weigh(scale);
    }
    wait_for_copies<0>();
    __syncthreads();  // the keys have been read
    if (turn + 1 < turns) copy_turn(keys, cache.keys, cache, pages, key_head, first + kKeys, context);
    if (looks) rows.add_values(values, reader);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.total[r] += __shfl_xor_sync(0xffffffffU, rows.total[r], 1);
    rows.total[r] += __shfl_xor_sync(0xffffffffU, rows.total[r], 2);
    const int token = first_row + 8 * r;
    if (token >= tile.count) continue;
    const float inverse = 1 / rows.total[r];
#pragma unroll
    for (int j = 0; j < Rows<D>::kTiles; ++j)
      *reinterpret_cast<std::uint32_t*>(out + row_of(token) + static_cast<std::size_t>(8 * j + 2 * (lane % 4))) =
          packed(rows.sum[j][2 * r] * inverse, rows.sum[j][2 * r + 1] * inverse);
  }
}

template <int D>
CudaResult attend(Real* out, const PagedCache& cache, const AttentionInput& input, const PromptTile* tiles,
                  std::int64_t count, Stream stream) {
  const auto kernel = &prompt_attention_kernel<D>;
  BASCULE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<D>)));
  const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(input.heads));
  return BASCULE_CUDA_RESULT(launch(kernel, blocks, kThreads, sizeof(Shared<D>), stream, out, cache, input, tiles));
}

}  // namespace

CudaResult prompt_attention(void* out, const PagedCache& cache, const AttentionInput& input, const PromptTile* tiles,
                            std::int64_t count, Stream stream) {
  if (!has_prompt_attention(cache)) return BASCULE_CUDA_CODE(cudaErrorInvalidValue);
  return cache.width == 64 ? attend<64>(static_cast<Real*>(out), cache, input, tiles, count, stream)
                           : attend<128>(static_cast<Real*>(out), cache, input, tiles, count, stream);
}

}  // namespace bascule::ref::ops
