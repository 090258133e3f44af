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
  return std::all_of(group.rollouts.begin(), group.rollouts.end(),
                     [&](const Rollout& each) { return each.reward == group.rollouts.front().reward; });
}

void compute_advantages(std::span<CompletionGroup> groups, bool scale) {
  for (CompletionGroup& group : groups) {
    std::vector<double> rewards;
    for (const Rollout& rollout : group.rollouts) rewards.push_back(rollout.score());
    const std::vector<double> values = advantages(rewards, scale);
    for (std::size_t i = 0; i < values.size(); ++i) group.rollouts[i].advantage = values[i];
  }
}

}  // namespace bascule::ref
