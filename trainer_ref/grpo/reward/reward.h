// Rewards: what a completion is worth. The functions here are chosen by name on the command line; programs and servers
// of the user's are rewards, too (reward_batch.h).
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

// One completion to be scored, and the problem that it is to solve.
struct Scored {
  const Problem* problem = nullptr;
  const Rollout* rollout = nullptr;
};

// Threads: one at a time.
class Reward {
 public:
  virtual ~Reward() = default;

  // A number for each of `completions`, in their order; NaN where the reward has nothing to say of one. May block, for
  // a bounded time. An error means that none was scored; it says why.
  virtual absl::StatusOr<std::vector<double>> score(std::span<const Scored> completions) = 0;
};

// Larger rewards and weights are refused: advantages square them.
inline constexpr double kLargestReward = 1e6;

// For rewards that ask somebody else.
struct RewardOptions {
  absl::Duration timeout = absl::Seconds(60);               // for one batch
  std::function<void(std::string_view)> log = [](auto) {};  // told of what had to be tried again
  std::function<bool()> stopped = [] { return false; };     // true ends every wait within a second: CANCELLED
};

using RewardFunction = double (*)(const Problem&, const Rollout&);

// A reward that asks `function` of each completion alone.
std::unique_ptr<Reward> reward_of(RewardFunction function);

// 1 where the text is the answer, surrounding blanks aside; else 0; NaN where the answer is empty.
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

}  // namespace bascule::ref
