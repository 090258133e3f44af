// Copies the tokens that the previous step drew to where this step reads its input, without waiting for the host, and
// notes each token's id beside its keys and values in the cache.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/ops/draw.h>

namespace bascule::ref::ops {

struct FedTokens {
  std::int64_t* token_ids = nullptr;       // [tokens]
  const std::int32_t* drawn_by = nullptr;  // [singles]
  const Drawn* drawn = nullptr;            // of the previous step
  const std::int64_t* places = nullptr;    // [tokens]: in the cache
  std::int64_t singles = 0, tokens = 0;    // the singles come first
};

// token_ids[n] = drawn[drawn_by[n]].token if drawn_by[n] is not -1, or 0 if that draw had none; n < singles. Then
// history[places[n]] = token_ids[n]; n < tokens. Device memory.
kernels::cuda::CudaResult feed_tokens(std::int32_t* history, const FedTokens& fed, kernels::cuda::Stream stream);

namespace plain {
void feed_tokens(std::int32_t* history, const FedTokens& fed);
}  // namespace plain

}  // namespace bascule::ref::ops
