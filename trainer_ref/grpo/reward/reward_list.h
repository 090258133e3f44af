// The list of --reward: which rewards a run has, with what weights, and what they make of a step's completions.
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

// One item of the list, as told.
struct RewardSpec {
  std::string name = {};  // in metrics, each once: "exact_match", "exec:reward.py", "http://127.0.0.1:9000/score"
  double weight = 1;
  bool needs_answer = false;              // has nothing to say of a problem without one
  RewardFunction function = nullptr;      // or
  std::vector<std::string> command = {};  // of exec:, the program and its arguments, or
  std::string url = {};                   // of http:
};

// "exact_match,exec:./reward.py=0.5": names with weights, 1 where none is given. A weight stands behind the last "=" of
// its item; the words of a command are parted by blanks; a backslash takes its meaning from the character behind it
// (exec:./a\,b.py, http://host/?kind\=1). INVALID_ARGUMENT: an unknown name (the nearest is named), an item that stands
// twice, a weight that is no number or beyond a million, a URL that is none.
absl::StatusOr<std::vector<RewardSpec>> parse_rewards(std::string_view text);

// OK where each reward may have something to say of `problems`. INVALID_ARGUMENT names one that needs answers where no
// problem has one.
absl::Status check_answers(std::span<const RewardSpec> specs, std::span<const Problem> problems);

struct WeightedReward {
  std::string name;
  double weight = 1;
  std::unique_ptr<Reward> reward;
};

// Starts the programs. INVALID_ARGUMENT names one that cannot be started.
absl::StatusOr<std::vector<WeightedReward>> make_rewards(std::span<const RewardSpec> specs,
                                                         const RewardOptions& options);

// The mean of each reward by its name, over the completions of which it says something; NaN where there is none.
using RewardMeans = std::vector<std::pair<std::string, double>>;

// Gives each completion of `groups` its reward: Σ weight · reward, without the rewards that say NaN; 0 where all do.
// Blocks as long as the rewards do. An error names the reward.
absl::StatusOr<RewardMeans> score_groups(std::span<const WeightedReward> rewards, std::span<CompletionGroup> groups);

}  // namespace bascule::ref
