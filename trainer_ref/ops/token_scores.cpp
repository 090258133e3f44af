#include <bascule/trainer_ref/ops/token_scores.h>

#include <algorithm>
#include <cmath>

namespace bascule::ref::ops::plain {

void score_tokens(const TokenScores& out, Reals logits, const std::int64_t* targets, std::int64_t rows,
                  std::int64_t vocabulary) {
  const auto width = static_cast<std::size_t>(vocabulary);
  for (std::size_t n = 0; n < static_cast<std::size_t>(rows); ++n) {
    const auto at = [&](std::size_t i) { return static_cast<double>(logits[n * width + i]); };
    double largest = at(0), sum = 0, weighted = 0;
    for (std::size_t i = 1; i < width; ++i) largest = std::max(largest, at(i));
    for (std::size_t i = 0; i < width; ++i) {
      sum += std::exp(at(i) - largest);
      weighted += at(i) * std::exp(at(i) - largest);
    }
    const double log_sum = largest + std::log(sum);
    out.log_sum[n] = static_cast<float>(log_sum);
    out.log_prob[n] = static_cast<float>(at(static_cast<std::size_t>(targets[n])) - log_sum);
    out.entropy[n] = static_cast<float>(log_sum - weighted / sum);
  }
}

void differentiate_scores(Reals logits, const std::int64_t* targets, const float* log_sums, const float* weights,
                          std::int64_t rows, std::int64_t vocabulary) {
  const auto width = static_cast<std::size_t>(vocabulary);
  for (std::size_t n = 0; n < static_cast<std::size_t>(rows); ++n)
    for (std::size_t i = 0; i < width; ++i) {
      const float p = std::exp(logits[n * width + i] - log_sums[n]);
      logits.set(n * width + i, weights[n] * ((i == static_cast<std::size_t>(targets[n]) ? 1.0f : 0.0f) - p));
    }
}

}  // namespace bascule::ref::ops::plain
