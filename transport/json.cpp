#include "transport/json.h"

#include <set>
#include <string>
#include <vector>

#include "transport/text.h"

namespace bascule {
namespace {

// Looks at brackets alone, so that nesting is refused before a parser spends memory on it.
bool nests_deeper_than(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where) {
  if (nests_deeper_than(text, kMaxJsonFileDepth)) {
    return invalid_argument(where, ": its JSON nests deeper than ", kMaxJsonFileDepth, " levels");
  }
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string duplicate;
  const auto watch_keys = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second && duplicate.empty()) {
      duplicate = value.get<std::string>();
    }
    return true;
  };
  try {
    nlohmann::json value = nlohmann::json::parse(text, watch_keys);
    if (!duplicate.empty()) {
      return invalid_argument(where, ": the key '", duplicate, "' stands twice in one object");
    }
    return value;
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument(where, " is not valid JSON: ", error.what());
  }
}

}  // namespace bascule
