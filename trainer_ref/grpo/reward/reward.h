// Rewards of completions. The command line selects the functions here by name; the user's programs and servers can also
// be rewards (reward_batch.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

// One completion to be scored, and its problem.
struct Scored {
  const Problem* problem = nullptr;
  const Rollout* rollout = nullptr;
};

// Threads: one at a time.
class Reward {
 public:
  virtual ~Reward() = default;

  // Returns a number for each of `completions`, in their order; NaN if the reward does not apply to it. May block for a
  // bounded time. On an error, none is scored.
  virtual absl::StatusOr<std::vector<double>> score(std::span<const Scored> completions) = 0;
};

// Larger rewards and weights are refused: advantages square them.
inline constexpr double kLargestReward = 1e6;

// For rewards that another process computes.
struct RewardOptions {
  absl::Duration timeout = absl::Seconds(60);               // for one batch
  std::function<void(std::string_view)> log = [](auto) {};  // gets failures that are retried
  std::function<bool()> stopped = [] { return false; };     // if true, every wait ends with CANCELLED, within a second
};

using RewardFunction = double (*)(const Problem&, const Rollout&);

// A reward that calls `function` for each completion.
std::unique_ptr<Reward> reward_of(RewardFunction function);

// 1 if the text is the answer, except for surrounding blanks; else 0; NaN if the answer is empty.
double exact_match(const Problem& problem, const Rollout& rollout);
// 1 if the last decimal number in the text ("-3.5", "1,234") equals the answer exactly, else 0; NaN if the answer is
// not such a number.
double number_match(const Problem& problem, const Rollout& rollout);
// 1 if the final answer of the text (\boxed{…}, ####, "the answer is …", or the last number) equals that in the answer
// column, which may begin with a rationale; else 0; NaN if the answer is empty. Numbers are compared exactly, other
// answers as text; see has_math_answer().
double math_match(const Problem& problem, const Rollout& rollout);
// 1 if the completion ended by itself, 0 if it was cut off.
double finished(const Problem& problem, const Rollout& rollout);
// 1 if the text has at most as many bytes as the column "max_bytes" says, else 0; NaN without that column.
double within_length(const Problem& problem, const Rollout& rollout);

}  // namespace bascule::ref
