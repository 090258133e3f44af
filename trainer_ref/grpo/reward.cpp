#include <bascule/trainer_ref/grpo/reward.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_join.h"
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kDigits = "0123456789";
constexpr double kLargestWeight = 1e6;  // advantages square it

struct Named {
  std::string_view name;
  RewardFunction function;
};
constexpr std::array<Named, 4> kRewards = {{{"exact_match", exact_match},
                                            {"number_match", number_match},
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

// The last run of digits with the sign and the decimal point that belong to it: "is -3.5." holds -3.5.
std::optional<double> last_number(std::string_view text) {
  const std::size_t last = text.find_last_of(kDigits);
  if (last == std::string_view::npos) return std::nullopt;
  std::size_t begin = text.find_last_not_of("0123456789.", last) + 1;  // npos + 1: from the start
  begin = text.find_first_of(kDigits, begin);                          // no leading point
  if (begin > 0 && text[begin - 1] == '-') --begin;
  return number(text.substr(begin, last + 1 - begin));
}

}  // namespace

double exact_match(const Problem& problem, const Rollout& rollout) {
  return strip(rollout.text) == strip(problem.answer) ? 1 : 0;
}

double number_match(const Problem& problem, const Rollout& rollout) {
  const std::optional<double> expected = number(strip(problem.answer));
  if (!expected) return kNaN;
  return last_number(rollout.text) == expected ? 1 : 0;
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
