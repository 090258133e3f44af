#include <bascule/transport/program/config_file.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include <bascule/transport/json.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/repeated.h>
#include <bascule/transport/program/yaml.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;

using List = std::vector<std::string>;

// Whether the flag has one of these types, or an optional of one.
template <typename... T>
bool is_any_of(const absl::CommandLineFlag& flag) {
  return ((flag.IsOfType<T>() || flag.IsOfType<std::optional<T>>()) || ...);
}
bool is_integer(const absl::CommandLineFlag& flag) {
  return is_any_of<int, long, long long, unsigned, unsigned long, unsigned long long>(flag);
}

std::string text_of(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool fits(const absl::CommandLineFlag& flag, const nlohmann::json& value) {
  if (flag.IsOfType<bool>()) return value.is_boolean();
  if (is_integer(flag)) return value.is_number_integer();
  if (is_any_of<float, double>(flag)) return value.is_number();
  if (flag.IsOfType<ByteSize>()) return value.is_number_unsigned() || value.is_string();
  return value.is_string();
}

absl::StatusOr<nlohmann::json> parse_config(std::string_view text, const std::string& file) {
  if (file.ends_with(".yaml") || file.ends_with(".yml")) return parse_yaml(text, file);
  absl::StatusOr<nlohmann::json> value = parse_json(text, file);
  if (value.ok()) return value;
  return invalid_argument(message_of(value.status()), "; a file of YAML has a name that ends in .yaml or .yml");
}

std::vector<ConfigEntry> entries_in(const nlohmann::json& object) {
  std::vector<ConfigEntry> entries;
  for (const auto& [name, value] : object.items()) entries.push_back({name, value.dump()});
  return entries;
}

}  // namespace

const char* type_name(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "BOOL";
  if (is_integer(flag)) return "INTEGER";
  if (is_any_of<float, double>(flag)) return "NUMBER";
  if (flag.IsOfType<ByteSize>()) return "SIZE";
  if (flag.IsOfType<absl::Duration>()) return "DURATION";
  if (flag.IsOfType<List>() || flag.IsOfType<Repeated>()) return "LIST";
  return "TEXT";
}

absl::StatusOr<std::vector<ConfigEntry>> read_config_file(const std::string& file) {
  const absl::StatusOr<std::string> text = read_file(file, kMaxFileBytes);
  if (!text.ok())
    return invalid_argument("--config=", file, ": ", message_of(text.status()), "; give a file of flags, as ",
                            "--config=flags.json");
  BASCULE_ASSIGN(const nlohmann::json object, parse_config(*text, file));
  if (!object.is_object())
    return invalid_argument(file, ": expected an object of flags, such as {\"threads\": 2}, found ",
                            object.type_name());
  return entries_in(object);
}

absl::StatusOr<std::vector<ConfigEntry>> entries_of(const ConfigEntry& section) {
  BASCULE_ASSIGN(const nlohmann::json object, parse_json(section.json, section.name));
  if (!object.is_object())
    return invalid_argument("\"", section.name, "\": expected an object of flags, found ", section.json);
  return entries_in(object);
}

absl::StatusOr<std::string> flag_value(const absl::CommandLineFlag& flag, const ConfigEntry& entry) {
  BASCULE_ASSIGN(const nlohmann::json value, parse_json(entry.json, entry.name));
  if ((flag.IsOfType<List>() || flag.IsOfType<Repeated>()) && value.is_array()) {
    std::string joined;
    for (const nlohmann::json& element : value) {
      if (!element.is_string() || element.get_ref<const std::string&>().find(',') != std::string::npos)
        return invalid_argument("\"", entry.name, "\": expected a list of strings without commas, found ", entry.json);
      joined += cat(joined.empty() ? "" : ",", element.get_ref<const std::string&>());
    }
    return joined;
  }
  if (fits(flag, value)) return text_of(value);
  return invalid_argument("\"", entry.name, "\": expected ", type_name(flag), ", found ", entry.json);
}

}  // namespace bascule::inline v0
