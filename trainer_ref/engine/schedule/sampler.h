// Chooses a token from logits, and computes how likely tokens are. Plain C++ over one row: the same bits in any batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/logit_adjustments.h>

namespace bascule::ref {

// Below this temperature, sampling is greedy: the inverse of a very small temperature is infinite, and zero times
// infinity is NaN.
inline constexpr double kGreedyBelow = 1e-6;

// The distribution of log-probabilities: natural logarithms, always over the whole vocabulary.
enum class LogprobsMode {
  kRaw,        // softmax(logits), as the model gives them
  kProcessed,  // softmax(logits / temperature), of adjusted logits, before top_k, top_p and min_p cut it; greedy: at
               // the temperature 1. Without adjustments a trainer computes the same from its own logits.
};

struct SamplingParams {
  double temperature = 1;  // below kGreedyBelow: greedy
  std::int64_t top_k = 0;  // 0: all tokens
  double top_p = 1;        // the fewest tokens whose probabilities sum to it or more
  double min_p = 0;        // the least probability, as a fraction of the likeliest token's
  std::uint64_t seed = 0;
  LogprobsMode logprobs = LogprobsMode::kProcessed;
  std::int64_t top_logprobs = 0;  // likeliest tokens to report besides the sampled one
  LogitAdjustments adjustments = {};
};

struct TokenLogprob {
  std::int64_t token = 0;
  double logprob = 0;
  std::int64_t rank = 1;  // 1: none is likelier
};

// A token, how likely it was, and the likeliest tokens in falling order; ties go to the smaller id.
struct Sample {
  std::int64_t token = 0;
  double logprob = 0;
  std::int64_t rank = 0;  // counted if top_logprobs or prompt_logprobs are requested; 0: not counted
  std::vector<TokenLogprob> top = {};
};

// A number in [0, 1) that depends only on its arguments: the `position`-th token of a request's `choice`-th completion
// draws the same number in any batch, on any machine.
double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position);

// `logits` [V], V >= 1, are adjusted already; `raw` [V] are the model's, which raw log-probabilities are of. `draw` in
// [0, 1) picks by the inverse of the cumulative distribution: tokens in falling order of probability if top_k or top_p
// cut, else in order of their ids. Ties go to the smaller id. The cuts apply one after the other: min_p to all tokens,
// top_k to the ones left, and top_p as a fraction of the total of those left. Returns nullopt if a logit is NaN or all
// are infinite.
std::optional<Sample> sample(std::span<const float> logits, std::span<const float> raw, const SamplingParams& params,
                             double draw);
inline std::optional<Sample> sample(std::span<const float> logits, const SamplingParams& params, double draw) {
  return sample(logits, logits, params, draw);
}

// Returns how likely `token` is in `logits`, its rank, and the `count` likeliest tokens; the mode and the temperature
// are taken from `params`. Adjusts nothing.
std::optional<Sample> score(std::span<const float> logits, std::int64_t token, const SamplingParams& params,
                            std::int64_t count);

}  // namespace bascule::ref
