// Reward functions: plain functions of a problem and a completion, named on the command line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/rollout.h>

namespace bascule::ref {

using RewardFunction = double (*)(const Problem&, const Rollout&);

// 1 where the text is the answer, surrounding blanks aside; else 0.
double exact_match(const Problem& problem, const Rollout& rollout);
// 1 where the last decimal number in the text ("-3.5", "1,234") equals the answer, exactly; NaN where the answer is no
// such number.
double number_match(const Problem& problem, const Rollout& rollout);
// 1 where the final answer of the text (\boxed{…}, ####, "the answer is …", or the last number) is the answer's, which
// may stand behind its own rationale; see has_math_answer(). Numbers are compared exactly, other answers as text; NaN
// where the answer is empty.
double math_match(const Problem& problem, const Rollout& rollout);
// 1 where the completion ended by itself, 0 where it was cut off.
double finished(const Problem& problem, const Rollout& rollout);
// 1 where the text has at most as many bytes as the column "max_bytes" says, else 0; NaN without that column.
double within_length(const Problem& problem, const Rollout& rollout);

struct WeightedReward {
  std::string name;
  RewardFunction function = nullptr;
  double weight = 1;
};

// "exact_match,finished=0.1": names, each once, with weights, 1 where none is given. INVALID_ARGUMENT: an unknown name
// (the nearest is named), a name that stands twice, a weight that is no number or beyond a million.
absl::StatusOr<std::vector<WeightedReward>> parse_rewards(std::string_view text);

// Σ weight · function, ignoring the functions that say NaN; 0 where all do.
double total_reward(std::span<const WeightedReward> rewards, const Problem& problem, const Rollout& rollout);

}  // namespace bascule::ref
