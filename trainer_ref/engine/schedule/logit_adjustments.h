// What a request changes about logits before the temperature: a bias on some tokens, tokens that may not come yet, and
// penalties on tokens that are there already. Plain C++ over one row; ops/adjust_logits.h computes the same on a GPU.
//
// A token with the logit x, in this order, in float32:
//
//   x += bias                                       logit_bias; -infinity if the token may not come yet (min_tokens)
//   x  = x > 0 ? x / repetition : x * repetition    if the prompt or the completion has the token
//   x -= frequency * count                          count: how often the completion has the token
//   x -= presence                                   if count > 0
//
// The order and the formulas are vLLM's (v1/sample/sampler.py; apply_penalties() in model_executor/layers/utils.py).
// The repetition penalty comes from Keskar et al. 2019 (CTRL, section 4.1), the other two and the bias from OpenAI's
// API.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace bascule::ref {

struct TokenBias {
  std::int32_t token = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};
using TokenBiases = std::vector<TokenBias>;  // in rising order of tokens, each token once

struct LogitAdjustments {
  float repetition_penalty = 1;  // 1: none; above 0
  float presence_penalty = 0, frequency_penalty = 0;
  std::int64_t min_tokens = 0;
  std::shared_ptr<const TokenBiases> bias = {};        // null: none
  std::shared_ptr<const TokenBiases> early_bias = {};  // replaces `bias` for the first min_tokens tokens; null: none

  bool penalizes() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
  // For the token after `generated` ones.
  std::span<const TokenBias> biases(std::uint64_t generated) const;
  bool any(std::uint64_t generated) const { return penalizes() || !biases(generated).empty(); }
};

// Returns `bias` with -infinity for each of `tokens`, which may come in any order and repeatedly.
TokenBiases forbid(TokenBiases bias, std::vector<std::int64_t> tokens);

// Adjusts the logits [V] of the token after `prompt` and `completion`, all of whose tokens are below V.
void adjust(std::span<float> logits, const LogitAdjustments& adjustments, std::span<const std::int64_t> prompt,
            std::span<const std::int64_t> completion);

}  // namespace bascule::ref
