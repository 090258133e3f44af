#include <bascule/trainer_ref/grpo/reward/reward.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/grpo/reward/math_answer.h>
#include <bascule/trainer_ref/grpo/reward/math_text.h>

namespace bascule::ref {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

class FunctionReward final : public Reward {
 public:
  explicit FunctionReward(RewardFunction function) : function_(function) {}

  absl::StatusOr<std::vector<double>> score(std::span<const Scored> completions) override {
    std::vector<double> rewards;
    rewards.reserve(completions.size());
    for (const Scored& scored : completions) rewards.push_back(function_(*scored.problem, *scored.rollout));
    return rewards;
  }

 private:
  const RewardFunction function_;
};

}  // namespace

std::unique_ptr<Reward> reward_of(RewardFunction function) { return std::make_unique<FunctionReward>(function); }

double exact_match(const Problem& problem, const Rollout& rollout) {
  const std::string_view answer = trimmed(problem.answer);
  if (answer.empty()) return kNaN;  // else a model that writes nothing would be right
  return trimmed(rollout.text) == answer ? 1 : 0;
}

double number_match(const Problem& problem, const Rollout& rollout) {
  const std::string answer = plain_math(trimmed(problem.answer));
  const std::optional<NumberText> expected = first_number(answer, NumberForms::kDecimals);
  if (!expected || expected->begin > 0 || expected->end < answer.size()) return kNaN;
  const std::optional<Rational> value = value_of(*expected);
  if (!value) return kNaN;
  const std::string text = plain_math(rollout.text);
  const std::optional<NumberText> last = last_number(text, NumberForms::kDecimals);
  return last && value_of(*last) == value ? 1 : 0;
}

double math_match(const Problem& problem, const Rollout& rollout) {
  const MathAnswer expected = expected_math_answer(problem.answer);
  if (expected.text.empty()) return kNaN;
  return has_math_answer(rollout.text, expected) ? 1 : 0;
}

double finished(const Problem&, const Rollout& rollout) { return rollout.finish_reason == "stop" ? 1 : 0; }

double within_length(const Problem& problem, const Rollout& rollout) {
  const auto limit = problem.columns.find("max_bytes");
  if (limit == problem.columns.end() || !limit->is_number()) return kNaN;
  return static_cast<double>(rollout.text.size()) <= limit->get<double>() ? 1 : 0;
}

}  // namespace bascule::ref
