#include "trainer_ref/model/json.h"

#include <set>
#include <vector>

#include "trainer_ref/model/files.h"
#include "transport/text.h"

namespace bascule::ref {
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
  if (nests_deeper_than(text, kMaxCheckpointJsonDepth)) {
    return invalid_argument(where, ": its JSON nests deeper than ", kMaxCheckpointJsonDepth, " levels");
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

absl::StatusOr<nlohmann::json> read_json_object(const std::filesystem::path& path) {
  BASCULE_ASSIGN(const std::string text, read_file(path, kMaxJsonFileBytes));
  BASCULE_ASSIGN(nlohmann::json value, parse_json(text, path.string()));
  if (!value.is_object()) {
    return invalid_argument(path.string(), ": expected a JSON object, found ", value.type_name());
  }
  return value;
}

const nlohmann::json* JsonKeys::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t JsonKeys::size(const char* key, std::optional<std::int64_t> otherwise) {
  constexpr std::int64_t kMax = std::int64_t{1} << 31;  // a product of two sizes fits 64 bits
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!otherwise) fail(cat("the key ", key, " is missing"));
    return otherwise.value_or(1);
  }
  if (value->is_number_integer() && *value >= 1 && *value <= kMax) return value->get<std::int64_t>();
  wrong(key, "a size from 1 to 2^31");
  return 1;
}

double JsonKeys::positive(const char* key, std::optional<double> otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!otherwise) fail(cat("the key ", key, " is missing"));
    return otherwise.value_or(1);
  }
  if (value->is_number() && value->get<double>() > 0) return value->get<double>();
  wrong(key, "a number above 0");
  return 1;
}

bool JsonKeys::flag(const char* key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->is_boolean() && value->get<bool>();
}

std::string JsonKeys::word(const char* key, std::string_view otherwise) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  if (value != nullptr) wrong(key, "a string");
  return std::string(otherwise);
}

void JsonKeys::wrong(const char* key, std::string_view expected) {
  constexpr std::size_t kShown = 80;
  fail(cat(key, ": expected ", expected, ", found ", object_.at(key).dump().substr(0, kShown)));
}

void JsonKeys::fail(std::string_view what) {
  if (status_.ok()) status_ = invalid_argument(where_, ": ", what);
}

void JsonKeys::refuse(std::string_view what) {
  if (status_.ok()) status_ = unimplemented(where_, ": ", what);
}

JsonKeys JsonKeys::within(const char* key) {
  static const nlohmann::json empty = nlohmann::json::object();
  const nlohmann::json& value = object_.at(key);
  if (!value.is_object()) wrong(key, "an object");
  return {value.is_object() ? value : empty, cat(where_, ": ", key), status_};
}

}  // namespace bascule::ref
