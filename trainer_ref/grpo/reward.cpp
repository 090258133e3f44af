#include <bascule/trainer_ref/grpo/reward.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/grpo/math_answer.h>
#include <bascule/trainer_ref/grpo/math_text.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestWeight = 1e6;  // advantages square it

struct Named {
  std::string_view name;
  RewardFunction function;
};
constexpr std::array<Named, 5> kRewards = {{{"exact_match", exact_match},
                                            {"number_match", number_match},
                                            {"math_match", math_match},
                                            {"finished", finished},
                                            {"within_length", within_length}}};

std::string_view strip(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The whole of `text` as a number.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

double exact_match(const Problem& problem, const Rollout& rollout) {
  return strip(rollout.text) == strip(problem.answer) ? 1 : 0;
}

double number_match(const Problem& problem, const Rollout& rollout) {
  const std::string answer = plain_math(strip(problem.answer));
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

absl::StatusOr<std::vector<WeightedReward>> parse_rewards(std::string_view text) {
  std::vector<WeightedReward> rewards;
  while (true) {
    const std::string_view item = strip(text.substr(0, text.find(',')));
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const std::optional<double> weight =
        equals == std::string_view::npos ? std::optional<double>(1) : number(item.substr(equals + 1));
    if (!weight || !(std::abs(*weight) <= kLargestWeight))
      return invalid_argument("reward \"", item, "\": expected a number from -1e6 to 1e6 after =");
    const auto* found = std::find_if(kRewards.begin(), kRewards.end(), [&](const Named& r) { return r.name == name; });
    if (found == kRewards.end()) {
      std::vector<std::string> names;
      names.reserve(kRewards.size());
      for (const Named& reward : kRewards) names.emplace_back(reward.name);
      return invalid_argument("unknown reward \"", name, "\"", did_you_mean(name, names),
                              " (known: ", absl::StrJoin(names, ", "), ")");
    }
    if (std::any_of(rewards.begin(), rewards.end(), [&](const WeightedReward& other) { return other.name == name; }))
      return invalid_argument("reward \"", name, "\" stands twice; give each once, with its weight, as ", name, "=2");
    rewards.push_back({std::string(name), found->function, *weight});
    const std::size_t comma = text.find(',');
    if (comma == std::string_view::npos) return rewards;
    text.remove_prefix(comma + 1);
  }
}

double total_reward(std::span<const WeightedReward> rewards, const Problem& problem, const Rollout& rollout) {
  double total = 0;
  for (const WeightedReward& reward : rewards)
    if (const double value = reward.function(problem, rollout); !std::isnan(value)) total += reward.weight * value;
  return total;
}

}  // namespace bascule::ref
