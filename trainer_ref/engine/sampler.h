// Choosing a token from logits. Plain C++ over one row: the same bits whatever batch the row ran in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace bascule::ref {

// Temperatures below it are greedy: of the smallest ones the inverse is infinite, and zero times it no number.
inline constexpr double kGreedyBelow = 1e-6;

struct SamplingParams {
  double temperature = 1;  // below kGreedyBelow: greedy
  std::int64_t top_k = 0;  // 0: all tokens
  double top_p = 1;        // the fewest tokens whose probabilities sum to it or more
  std::uint64_t seed = 0;
};

struct Sample {
  std::int64_t token = 0;
  // Natural logarithm of the token's probability under softmax(logits / temperature) over the whole
  // vocabulary, before top_k and top_p cut it; greedy: under softmax(logits). What a trainer computes again
  // from its own logits.
  double logprob = 0;
};

// A number in [0, 1) that depends on nothing but its arguments: the `position`-th token of a request's
// `choice`-th completion draws the same number in any batch, on any machine.
double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position);

// `logits` [V], V >= 1. `draw` in [0, 1) picks by the inverse of the cumulative distribution, tokens in
// falling order of probability where top_k or top_p cut, else in order of their ids. Ties go to the smaller
// id. Nothing where a logit is not a number or all are infinite: such weights can say nothing.
std::optional<Sample> sample(std::span<const float> logits, const SamplingParams& params, double draw);

}  // namespace bascule::ref
