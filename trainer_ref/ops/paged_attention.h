// Attention of tokens over their sequences' keys and values in the paged cache: blocks are read in place.
//
//   out[n, h] = Σ_t softmax_t(scale · query[n, h] · key[t, h / (H/G)]) · value[t, h / (H/G)],   t < context[n]
//
// A token's context is the keys and values of its sequence up to its own, which are in the cache already. The H/G query
// heads that share a key head are computed together. Shapes: N tokens, H query heads, G key/value heads, D head width;
// H/G at most kMostShared.
//
// Two kernels: `token_attention` takes each token by itself, and splits a long context over several blocks of threads.
// It serves sequences of which a step computes one token. `prompt_attention` takes up to 64 tokens of a sequence at
// once, on tensor cores. It serves pieces of prompts, in bfloat16 with D of 64 or 128.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/ops/paged_cache.h>

namespace bascule::ref::ops {

struct AttentionInput {
  const void* query = nullptr;               // [N, H, D]
  const std::int32_t* pages = nullptr;       // [rows, pages_per_row]: the blocks of each sequence, in order
  const std::int32_t* row_of = nullptr;      // [N]: each token's row of `pages`; null: token n has row n
  const std::int32_t* context_of = nullptr;  // [N]
  std::int64_t tokens = 0;                   // N
  int pages_per_row = 0;
  int heads = 1;  // H
  float scale = 1;
};

// Returns how many blocks of threads should share a token's context to keep `processors` busy with `tokens` tokens.
int splits_for(std::int64_t tokens, int key_heads, std::int64_t longest_context, int processors);
// Returns how many elements of float32 token_attention() needs as work space; 0 with a single split.
std::int64_t partial_floats(std::int64_t tokens, int heads, int width, int splits);

// Writes out [N, H, D], of the cache's type. `partial` is device memory for partial_floats() elements.
kernels::cuda::CudaResult token_attention(void* out, const PagedCache& cache, const AttentionInput& input, int splits,
                                          float* partial, kernels::cuda::Stream stream);

constexpr bool has_prompt_attention(const PagedCache& cache) {
  return cache.dtype == DType::kBF16 && (cache.width == 64 || cache.width == 128);
}

inline constexpr int kTileTokens = 64;
// Up to kTileTokens tokens of one sequence, side by side in the batch.
struct PromptTile {
  std::int32_t row = 0;       // of `pages`
  std::int32_t begin = 0;     // its first token in the batch
  std::int32_t count = 0;     // 0: the tile only pads
  std::int32_t position = 0;  // of its first token in the sequence, whose context is position + 1
};
// Like token_attention(), for the tokens of `tiles` [count] in device memory; row_of and context_of are not read.
kernels::cuda::CudaResult prompt_attention(void* out, const PagedCache& cache, const AttentionInput& input,
                                           const PromptTile* tiles, std::int64_t count, kernels::cuda::Stream stream);

namespace plain {
void token_attention(void* out, const PagedCache& cache, const AttentionInput& input);
}  // namespace plain

}  // namespace bascule::ref::ops
