// The soft penalty of long completions: they lose reward before they are cut off, so that the policy learns to end.
#pragma once

#include <cstdint>
#include <span>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct OverlongOptions {
  std::int64_t max_tokens = 1;
  std::int64_t buffer = 0;  // the last tokens of max_tokens, over which the penalty grows; 0: there is none
  double penalty = 1;       // of a completion of max_tokens
};

// What a completion of that many tokens loses, DAPO's eq. 13 (arXiv 2503.14476) with L_max = max_tokens, L_cache =
// buffer:
//   0 up to L_max − L_cache, then penalty · (|y| − (L_max − L_cache)) / L_cache, and penalty from L_max on.
double overlong_penalty(std::int64_t tokens, const OverlongOptions& options);

// Sets the penalty of each completion. The mean of what they gained: 0 or less.
double penalize_overlong(std::span<CompletionGroup> groups, const OverlongOptions& options);

}  // namespace bascule::ref
