#include <bascule/trainer_ref/grpo/reward/advantage.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace bascule::ref {

std::vector<double> advantages(std::span<const double> rewards, bool scale) {
  const auto count = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
  const double deviation = rewards.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  const double scaled_by = scale ? deviation + 1e-4 : 1;

  std::vector<double> result;
  for (const double reward : rewards) result.push_back((reward - mean) / scaled_by);
  return result;
}

bool is_flat(const CompletionGroup& group) {
  const auto is_scored = [](const Rollout& each) { return each.reward.has_value(); };
  const auto first = std::find_if(group.rollouts.begin(), group.rollouts.end(), is_scored);
  return std::all_of(first, group.rollouts.end(),
                     [&](const Rollout& each) { return !each.reward || each.reward == first->reward; });
}

void compute_advantages(std::span<CompletionGroup> groups, bool scale) {
  for (CompletionGroup& group : groups) {
    std::vector<Rollout*> scored;
    std::vector<double> scores;
    for (Rollout& rollout : group.rollouts) {
      rollout.advantage.reset();
      if (!rollout.reward) continue;
      scored.push_back(&rollout);
      scores.push_back(*rollout.score());
    }
    if (scores.size() >= 2) {
      const std::vector<double> values = advantages(scores, scale);
      for (std::size_t i = 0; i < values.size(); ++i) scored[i]->advantage = values[i];
    }
    for (Rollout& rollout : group.rollouts)
      if (rollout.set_advantage) rollout.advantage = rollout.set_advantage;
  }
}

}  // namespace bascule::ref
