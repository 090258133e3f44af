#include <bascule/trainer_ref/grpo/reward/reward_answer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include <bascule/trainer_ref/grpo/reward/reward.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kShown = 300;  // bytes of an answer in a message

// Replaces the numbers that Python's json.dumps() writes and JSON does not have.
std::string as_strict_json(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNumbers = {
      {{"NaN", "null"}, {"-Infinity", "\"-Infinity\""}, {"Infinity", "\"Infinity\""}}};
  std::string strict;
  strict.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto* number = std::find_if(kNumbers.begin(), kNumbers.end(), [&](const auto& each) {
      return !in_string && text.substr(i, each.first.size()) == each.first;
    });
    if (number != kNumbers.end()) {
      strict += number->second;
      i += number->first.size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\') strict += text[i++];
    if (i < text.size()) strict += text[i++];
  }
  return strict;
}

absl::StatusOr<nlohmann::json> parse_answer(std::string_view text) {
  absl::StatusOr<nlohmann::json> json = parse_json(text, "the answer");
  if (json.ok()) return json;
  // print("score:", end=" ") before the answer leaves both on one line.
  const std::size_t begin = std::min(text.find('{'), text.size());
  absl::StatusOr<nlohmann::json> lenient = parse_json(as_strict_json(text.substr(begin)), "the answer");
  return lenient.ok() ? lenient : json;
}

// Returns nullopt if the element is not a valid reward.
std::optional<double> reward_in(const nlohmann::json& element) {
  const auto named = element.is_object() ? element.find("reward") : element.end();
  const nlohmann::json& value = element.is_object() && named != element.end() ? *named : element;
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number() || !(std::abs(value.get<double>()) <= kLargestReward)) return std::nullopt;
  return value.get<double>();
}

}  // namespace

absl::StatusOr<RewardAnswer> read_reward_answer(std::string_view answer, std::uint64_t id, std::size_t count) {
  const absl::StatusOr<nlohmann::json> json = parse_answer(answer);
  const auto refused = [&](const auto&... why) {
    return invalid_argument(why..., "; expected {\"id\": ", id, ", \"rewards\": [", count,
                            " numbers]}, found: ", shown_answer(answer));
  };
  if (!json.ok()) return refused(message_of(json.status()));
  if (!json->is_object()) return refused("the answer is not a JSON object");
  if (const auto found = json->find("id"); found == json->end() || *found != id)
    return refused("the answer has ", found == json->end() ? "no id" : cat("the id ", found->dump()));
  const auto list = json->find("rewards");
  if (list == json->end() || !list->is_array()) return refused("the answer has no list \"rewards\"");
  if (list->size() != count) return refused("the answer has ", list->size(), " rewards");
  RewardAnswer read;
  read.rewards.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<double> reward = reward_in((*list)[i]);
    if (!reward && read.refused++ == 0)
      read.first_refused =
          cat("rewards[", i, "] is ", shown_answer((*list)[i].dump()),
              ", neither a number from -1e6 to 1e6, null, true, false, nor an object with one as \"reward\"");
    read.rewards.push_back(reward.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return read;
}

bool is_stray_line(std::string_view line, std::uint64_t id) {
  const absl::StatusOr<nlohmann::json> json = parse_answer(line);
  if (!json.ok() || !json->is_object()) return true;
  const auto found = json->find("id");
  if (found != json->end() && *found == id) return false;
  const bool is_earlier = found != json->end() && found->is_number_unsigned() && *found < id;
  return is_earlier || !json->contains("rewards");
}

std::string shown_answer(std::string_view answer) {
  return answer.size() <= kShown ? std::string(answer) : cat(answer.substr(0, kShown), "…");
}

}  // namespace bascule::ref
