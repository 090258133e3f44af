// The soft penalty for long completions: they lose reward before they are cut off, so that the policy learns to end.
#pragma once

#include <cstdint>
#include <span>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct OverlongOptions {
  std::int64_t max_tokens = 1;
  std::int64_t buffer = 0;  // the last tokens of max_tokens, over which the penalty grows; 0: no penalty
  double penalty = 1;       // for a completion of max_tokens
};

// The penalty for a completion of |y| = `tokens`, by DAPO's eq. 13 (arXiv 2503.14476) with L_max = max_tokens and
// L_cache = buffer:
//   0 up to L_max − L_cache, then penalty · (|y| − (L_max − L_cache)) / L_cache, and `penalty` for L_max or more.
double overlong_penalty(std::int64_t tokens, const OverlongOptions& options);

// Sets the penalty of each scored completion. Returns the mean of the negated penalties: 0 or less; NaN if no
// completion is scored.
double penalize_overlong(std::span<CompletionGroup> groups, const OverlongOptions& options);

}  // namespace bascule::ref
