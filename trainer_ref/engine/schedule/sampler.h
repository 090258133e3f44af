// Choosing a token from logits, and how likely tokens are. Plain C++ over one row: the same bits whatever batch the row
// ran in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace bascule::ref {

// Temperatures below it are greedy: of the smallest ones the inverse is infinite, and zero times it no number.
inline constexpr double kGreedyBelow = 1e-6;

// Under which distribution log-probabilities are: natural logarithms, always over the whole vocabulary.
enum class LogprobsMode {
  kRaw,        // softmax(logits)
  kProcessed,  // softmax(logits / temperature), before top_k, top_p and min_p cut it; greedy: as raw. What a trainer
               // computes again from its own logits.
};

struct SamplingParams {
  double temperature = 1;  // below kGreedyBelow: greedy
  std::int64_t top_k = 0;  // 0: all tokens
  double top_p = 1;        // the fewest tokens whose probabilities sum to it or more
  double min_p = 0;        // the least probability, as a part of the likeliest token's
  std::uint64_t seed = 0;
  LogprobsMode logprobs = LogprobsMode::kProcessed;
  std::int64_t top_logprobs = 0;  // likeliest tokens to tell of beside the sampled one
};

struct TokenLogprob {
  std::int64_t token = 0;
  double logprob = 0;
  std::int64_t rank = 1;  // 1: none is likelier
};

// A token and how likely it was, and the likeliest ones instead, in falling order; ties go to the smaller id.
struct Sample {
  std::int64_t token = 0;
  double logprob = 0;
  std::int64_t rank = 0;  // counted where top_logprobs or a prompt's are asked for; 0: not counted
  std::vector<TokenLogprob> top = {};
};

// A number in [0, 1) that depends on nothing but its arguments: the `position`-th token of a request's
// `choice`-th completion draws the same number in any batch, on any machine.
double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position);

// `logits` [V], V >= 1. `draw` in [0, 1) picks by the inverse of the cumulative distribution, tokens in
// falling order of probability where top_k or top_p cut, else in order of their ids. Ties go to the smaller
// id. The cuts come one after the other: min_p of all tokens, top_k of those that are left, top_p of the weight of
// those. Nothing where a logit is not a number or all are infinite: such weights can say nothing.
std::optional<Sample> sample(std::span<const float> logits, const SamplingParams& params, double draw);

// How likely `token` is in `logits`, with its rank and `count` likeliest ones; `params` say the mode and the
// temperature.
std::optional<Sample> score(std::span<const float> logits, std::int64_t token, const SamplingParams& params,
                            std::int64_t count);

}  // namespace bascule::ref
