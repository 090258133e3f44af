// FlashAttention-2 (Dao 2023) over a paged cache, forward only: a block of four warps takes a tile of 64 queries of one
// head, 16 a warp, and goes over keys and values 64 at a time, of which the next are copied to shared memory meanwhile.
#include <bascule/trainer_ref/ops/launch.cuh>
#include <bascule/trainer_ref/ops/mma.cuh>
#include <bascule/trainer_ref/ops/paged_attention.h>
#include <bascule/trainer_ref/ops/real.cuh>

namespace bascule::ref::ops {
namespace {

using Real = __nv_bfloat16;

constexpr int kThreads = 128;
constexpr int kKeys = 64;  // of a turn
constexpr float kNothing = -1e30F;
constexpr float kLog2E = 1.4426950408889634F;

template <int D>
struct Shared {
  Real query[kTileTokens * D];
  Real key[2][kKeys * D];
  Real value[2][kKeys * D];
};

// The keys and values [first, first + kKeys) of a sequence, zeros from `context` on.
template <int D>
__device__ void copy_turn(const SharedTile<D>& keys, const SharedTile<D>& values, const PagedCache& cache,
                          const std::int32_t* pages, int head, int first, int context) {
  constexpr int kChunks = SharedTile<D>::kChunks;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks, t = first + row;
    const bool present = t < context;
    const std::size_t at =
        present ? offset_in(cache, std::int64_t{pages[t / kPageTokens]} * kPageTokens + t % kPageTokens, head) +
                      static_cast<std::size_t>(chunk * 8)
                : 0;
    keys.copy(row, chunk, static_cast<const Real*>(cache.keys) + at, present);
    values.copy(row, chunk, static_cast<const Real*>(cache.values) + at, present);
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads)
    prompt_attention_kernel(Real* out, PagedCache cache, AttentionInput input, const PromptTile* tiles) {
  constexpr int kDeep = D / 16, kTiles = D / 8, kKeyTiles = kKeys / 8;
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<D>*>(memory);
  const PromptTile tile = tiles[blockIdx.x];
  if (tile.count == 0) return;
  const int head = static_cast<int>(blockIdx.y), key_head = head / (input.heads / cache.heads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t* const pages = input.pages + static_cast<std::int64_t>(tile.row) * input.pages_a_row;
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
  copy_turn<D>({shared.key[0]}, {shared.value[0]}, cache, pages, key_head, 0, context);
  commit_copies();

  std::uint32_t query[kDeep][4];
  float sum[kTiles][4] = {};
  float highest[2] = {kNothing, kNothing}, total[2] = {0, 0};  // of rows lane/4 and lane/4 + 8
  const float scale = input.scale * kLog2E;
  const int first_row = 16 * warp + lane / 4;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns) {
      copy_turn<D>({shared.key[(turn + 1) % 2]}, {shared.value[(turn + 1) % 2]}, cache, pages, key_head,
                   (turn + 1) * kKeys, context);
      commit_copies();
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    if (turn == 0) {
#pragma unroll
      for (int k = 0; k < kDeep; ++k)
        load_matrices(query[k], queries.address(16 * warp + lane % 16, 2 * k + lane / 16));
    }

    float score[kKeyTiles][4] = {};
    const SharedTile<D> keys{shared.key[turn % 2]}, values{shared.value[turn % 2]};
#pragma unroll
    for (int k = 0; k < kDeep; ++k)
#pragma unroll
      for (int j = 0; j < kKeyTiles; j += 2) {
        std::uint32_t b[4];
        load_matrices(b, keys.address(8 * j + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        multiply_add(score[j], query[k], b[0], b[1]);
        multiply_add(score[j + 1], query[k], b[2], b[3]);
      }

    // Who may look at what: only at the diagonal it is not everybody at everything.
    if ((turn + 1) * kKeys > tile.position + 16 * warp + 1) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = turn * kKeys + 8 * j + 2 * (lane % 4) + i % 2;
          const int position = tile.position + first_row + i / 2 * 8;
          if (key > position) score[j][i] = kNothing;
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = highest[r];
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) top = fmaxf(top, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
      const float shrink = exp2f((highest[r] - top) * scale);
      highest[r] = top;
      total[r] *= shrink;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sum[j][2 * r] *= shrink;
        sum[j][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          score[j][i] = exp2f((score[j][i] - top) * scale);
          total[r] += score[j][i];
        }
    }
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
    __syncthreads();  // what the turn after the next overwrites has been read
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffU, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffU, total[r], 2);
    const int token = first_row + 8 * r;
    if (token >= tile.count) continue;
    const float inverse = 1 / total[r];
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      *reinterpret_cast<std::uint32_t*>(out + row_of(token) + static_cast<std::size_t>(8 * j + 2 * (lane % 4))) =
          packed(sum[j][2 * r] * inverse, sum[j][2 * r + 1] * inverse);
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
