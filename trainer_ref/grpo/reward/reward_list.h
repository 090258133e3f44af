// The list of --reward: a run's rewards with their weights, and the scores of a step's completions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/reward/reward.h>

namespace bascule::ref {

// One item of the list, as given.
struct RewardSpec {
  std::string name = {};  // in metrics, each once: "exact_match", "exec:reward.py", "http://127.0.0.1:9000/score"
  double weight = 1;
  bool needs_answer = false;              // the reward does not apply to a problem without one
  RewardFunction function = nullptr;      // set for a function of reward.h
  std::vector<std::string> command = {};  // set for exec:, the program and its arguments
  std::string url = {};                   // set for http:
};

// Parses names with optional weights: "exact_match,exec:./reward.py=0.5". A weight follows the last "=" of its item and
// is 1 by default. Blanks separate the words of a command. A backslash escapes the next character (exec:./a\,b.py,
// http://host/?kind\=1). Returns INVALID_ARGUMENT if a name is unknown (the text has the nearest one), an item appears
// twice, a weight is not a number or exceeds a million, or a URL is invalid.
absl::StatusOr<std::vector<RewardSpec>> parse_rewards(std::string_view text);

// Returns INVALID_ARGUMENT if a reward needs answers and no problem has one; the text names the reward.
absl::Status check_answers(std::span<const RewardSpec> specs, std::span<const Problem> problems);

struct WeightedReward {
  std::string name;
  double weight = 1;
  std::unique_ptr<Reward> reward;
};

// Starts the programs. INVALID_ARGUMENT names one that cannot be started.
absl::StatusOr<std::vector<WeightedReward>> make_rewards(std::span<const RewardSpec> specs,
                                                         const RewardOptions& options);

// The mean of each reward, by name, over the completions to which it applies; NaN if there are none.
using RewardMeans = std::vector<std::pair<std::string, double>>;

// Sets the reward of each completion of `groups`: Σ weight · reward over the rewards that apply to it; nullopt if none
// does. A reward with weight 0 is only measured. Blocks as long as the rewards do. An error names the reward.
absl::StatusOr<RewardMeans> score_groups(std::span<const WeightedReward> rewards, std::span<CompletionGroup> groups);

}  // namespace bascule::ref
