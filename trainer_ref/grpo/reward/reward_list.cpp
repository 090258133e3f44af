#include <bascule/trainer_ref/grpo/reward/reward_list.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/grpo/reward/reward_batch.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

struct Named {
  std::string_view name;
  RewardFunction function;
  bool needs_answer;
};
constexpr std::array<Named, 5> kRewards = {{{"exact_match", exact_match, true},
                                            {"number_match", number_match, true},
                                            {"math_match", math_match, true},
                                            {"finished", finished, false},
                                            {"within_length", within_length, false}}};
constexpr std::string_view kExec = "exec:", kHttp = "http://";
constexpr std::size_t kWhole = std::string_view::npos;

// Finds the first or last `c` in `text` without a backslash before it.
std::size_t find_plain(std::string_view text, char c, bool last = false) {
  std::size_t found = kWhole;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == c) {
      found = i;
      if (!last) break;
    }
  }
  return found;
}

std::string without_backslashes(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    result += text[i];
  }
  return result;
}

std::string_view strip_item(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ' && !text.ends_with("\\ ")) text.remove_suffix(1);
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (text = strip_item(text); !text.empty(); text = strip_item(text)) {
    const std::size_t blank = std::min(find_plain(text, ' '), text.size());
    words.push_back(without_backslashes(text.substr(0, blank)));
    text.remove_prefix(blank);
  }
  return words;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "exec:python3 reward.py": the words without their folders.
std::string short_name(const std::vector<std::string>& command) {
  std::vector<std::string> files;
  files.reserve(command.size());
  for (const std::string& word : command) files.push_back(word.substr(word.rfind('/') + 1));
  return cat(kExec, absl::StrJoin(files, " "));
}

absl::StatusOr<RewardSpec> parse_function(std::string_view name) {
  const auto* found = std::find_if(kRewards.begin(), kRewards.end(), [&](const Named& r) { return r.name == name; });
  if (found != kRewards.end())
    return RewardSpec{.name = std::string(name), .needs_answer = found->needs_answer, .function = found->function};
  std::vector<std::string> names;
  names.reserve(kRewards.size());
  for (const Named& reward : kRewards) names.emplace_back(reward.name);
  return invalid_argument("unknown reward \"", name, "\"", did_you_mean(name, names),
                          " (known: ", absl::StrJoin(names, ", "), ", exec:PROGRAM, http://HOST:PORT/PATH)");
}

absl::StatusOr<RewardSpec> parse_reward(std::string_view what) {
  if (what.starts_with(kExec)) {
    RewardSpec spec{.command = words_of(what.substr(kExec.size()))};
    if (spec.command.empty())
      return invalid_argument("reward \"", what, "\": expected a program after exec:, found none");
    spec.name = short_name(spec.command);
    return spec;
  }
  if (what.starts_with(kHttp)) {
    RewardSpec spec{.url = without_backslashes(what)};
    spec.name = spec.url;
    BASCULE_TRY(check_url(spec.url));
    return spec;
  }
  return parse_function(what);
}

}  // namespace

absl::StatusOr<std::vector<RewardSpec>> parse_rewards(std::string_view text) {
  std::vector<RewardSpec> specs;
  std::vector<std::string_view> seen;
  while (true) {
    const std::size_t comma = find_plain(text, ',');
    const std::string_view item = strip_item(text.substr(0, comma));
    const std::size_t equals = find_plain(item, '=', /*last=*/true);
    const std::string_view what = strip_item(item.substr(0, equals));
    const std::optional<double> weight =
        equals == kWhole ? std::optional<double>(1) : number(strip_item(item.substr(equals + 1)));
    if (!weight || !(std::abs(*weight) <= kLargestReward))
      return invalid_argument("reward \"", item, "\": expected a number from -1e6 to 1e6 after the last =",
                              " (\\= is one that belongs to a name)");
    BASCULE_ASSIGN(RewardSpec spec, parse_reward(what));
    spec.weight = *weight;
    if (std::find(seen.begin(), seen.end(), what) != seen.end())
      return invalid_argument("reward \"", what, "\" occurs twice; give each once, with its weight, as ", what, "=2");
    seen.push_back(what);
    // The folders distinguish programs of the same name.
    if (std::any_of(specs.begin(), specs.end(), [&](const RewardSpec& other) { return other.name == spec.name; }))
      spec.name = what;
    specs.push_back(std::move(spec));
    if (comma == kWhole) return specs;
    text.remove_prefix(comma + 1);
  }
}

absl::Status check_answers(std::span<const RewardSpec> specs, std::span<const Problem> problems) {
  const auto has_answer = [](const Problem& problem) {
    return problem.answer.find_first_not_of(" \t\r\n") != std::string::npos;
  };
  for (const RewardSpec& spec : specs)
    if (spec.needs_answer && std::none_of(problems.begin(), problems.end(), has_answer))
      return invalid_argument(
          "reward ", spec.name, " compares with a problem's answer, and no problem has one; name ",
          "their column by --answer-column, or give a reward that needs none, as --reward=finished ",
          "or --reward=exec:./reward.py");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WeightedReward>> make_rewards(std::span<const RewardSpec> specs,
                                                         const RewardOptions& options) {
  std::vector<WeightedReward> rewards;
  for (const RewardSpec& spec : specs) {
    std::unique_ptr<Reward> reward;
    if (spec.function != nullptr) {
      reward = reward_of(spec.function);
    } else if (!spec.command.empty()) {
      absl::StatusOr<std::unique_ptr<Reward>> started = exec_reward(spec.name, spec.command, options);
      if (!started.ok()) return annotate(started.status(), spec.name);
      reward = *std::move(started);
    } else {
      reward = http_reward(spec.name, spec.url, options);
    }
    rewards.push_back({.name = spec.name, .weight = spec.weight, .reward = std::move(reward)});
  }
  return rewards;
}

absl::StatusOr<RewardMeans> score_groups(std::span<const WeightedReward> rewards, std::span<CompletionGroup> groups) {
  std::vector<Scored> completions;
  std::vector<std::optional<double>*> totals;
  for (CompletionGroup& group : groups)
    for (Rollout& rollout : group.rollouts) {
      rollout.reward.reset();
      completions.push_back({.problem = group.problem, .rollout = &rollout});
      totals.push_back(&rollout.reward);
    }
  RewardMeans means;
  for (const WeightedReward& reward : rewards) {
    absl::StatusOr<std::vector<double>> values = reward.reward->score(completions);
    if (!values.ok()) return annotate(values.status(), cat("reward ", reward.name));
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < values->size(); ++i) {
      if (std::isnan((*values)[i])) continue;
      if (reward.weight != 0) *totals[i] = totals[i]->value_or(0) + reward.weight * (*values)[i];
      sum += (*values)[i];
      ++count;
    }
    means.emplace_back(reward.name, count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
  }
  return means;
}

}  // namespace bascule::ref
