#include <bascule/trainer_ref/json/json_keys.h>

#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

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

std::string JsonKeys::text(const char* key, std::string_view otherwise) {
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
