// Logits as requests change them, in float32: the results of adjust() of engine/schedule/logit_adjustments.h, bit by
// bit.
//
// A sequence's tokens are read from the cache, which has each token's id beside its keys and values (feed_tokens.h).
// So no counts are kept: what holds for the cache also holds for them, if a sequence is pre-empted, shares a prefix or
// gets other weights, and if its last token is one that only the device knows yet.
//
// Shapes: V vocabulary, A adjusted rows, P tokens of a block (kPageTokens).
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/kernels/dtype.h>
#include <bascule/trainer_ref/ops/paged_cache.h>

namespace bascule::ref::ops {

// What the cache's sequences consist of.
struct TokenHistory {
  const std::int32_t* tokens = nullptr;  // [blocks, P]: the id at each place
  const std::int32_t* pages = nullptr;   // [rows, pages_a_row]: the blocks of each sequence
  std::int64_t pages_a_row = 0;
};

struct BiasedToken {
  std::int32_t token = 0;
  float bias = 0;  // or -infinity
};

// The request's changes to one row of logits, of the token after the first `tokens` of a sequence.
struct Adjustment {
  std::int32_t row = -1;   // of the logits; -1: padding, whose result is not written
  std::int32_t pages = 0;  // row of `TokenHistory::pages`
  std::int32_t prompt = 0, tokens = 0;
  float repetition = 1, presence = 0, frequency = 0;
  std::int32_t first_bias = 0, biases = 0;  // in the list of biased tokens, each token once
};

// Writes adjusted [A, V] for logits [rows, V]. All in device memory.
kernels::cuda::CudaResult adjust_logits(float* adjusted, const void* logits, DType dtype, std::int64_t vocabulary,
                                        const TokenHistory& history, const Adjustment* adjustments, std::int64_t count,
                                        const BiasedToken* biased, kernels::cuda::Stream stream);

}  // namespace bascule::ref::ops
