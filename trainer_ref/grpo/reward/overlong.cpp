#include <bascule/trainer_ref/grpo/reward/overlong.h>

#include <algorithm>

namespace bascule::ref {

double overlong_penalty(std::int64_t tokens, const OverlongOptions& options) {
  if (options.buffer == 0) return 0;
  const std::int64_t beyond = tokens - (options.max_tokens - options.buffer);
  return options.penalty * std::clamp(static_cast<double>(beyond) / static_cast<double>(options.buffer), 0.0, 1.0);
}

double penalize_overlong(std::span<CompletionGroup> groups, const OverlongOptions& options) {
  double sum = 0, completions = 0;
  for (CompletionGroup& group : groups)
    for (Rollout& rollout : group.rollouts) {
      if (!rollout.reward) continue;
      const double lost = overlong_penalty(static_cast<std::int64_t>(rollout.token_ids.size()), options);
      rollout.penalty = lost;
      sum -= lost;
      ++completions;
    }
  return sum / completions;
}

}  // namespace bascule::ref
