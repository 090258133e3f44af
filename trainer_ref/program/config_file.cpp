#include "trainer_ref/program/config_file.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/time/time.h"
#include "trainer_ref/program/byte_size.h"
#include "trainer_ref/program/json.h"
#include "transport/text.h"

namespace bascule::ref {
namespace {

constexpr std::streamsize kMaxFileBytes = 1 << 20;

using List = std::vector<std::string>;

template <typename... T>
bool is_any_of(const absl::CommandLineFlag& flag) {
  return (flag.IsOfType<T>() || ...);
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

}  // namespace

const char* type_name(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "BOOL";
  if (is_integer(flag)) return "INTEGER";
  if (is_any_of<float, double>(flag)) return "NUMBER";
  if (flag.IsOfType<ByteSize>()) return "SIZE";
  if (flag.IsOfType<absl::Duration>()) return "DURATION";
  if (flag.IsOfType<List>()) return "LIST";
  return "TEXT";
}

absl::StatusOr<std::vector<ConfigEntry>> read_config_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return invalid_argument("--config=", file, ": cannot be read; give a file");
  if (stream.tellg() > kMaxFileBytes)
    return invalid_argument(file, ": larger than ", kMaxFileBytes, " bytes, no flags file");
  stream.seekg(0);
  std::stringstream text;
  text << stream.rdbuf();
  const absl::StatusOr<nlohmann::json> object = parse_json(text.str());
  if (!object.ok()) return invalid_argument(file, ": ", object.status().message());
  if (!object->is_object())
    return invalid_argument(file, ": expected one JSON object of flags, found ", object->type_name());
  std::vector<ConfigEntry> entries;
  for (const auto& [name, value] : object->items()) entries.push_back({name, value.dump()});
  return entries;
}

absl::StatusOr<std::string> flag_value(const absl::CommandLineFlag& flag, const ConfigEntry& entry) {
  const nlohmann::json value = nlohmann::json::parse(entry.json);
  if (flag.IsOfType<List>() && value.is_array()) {
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

}  // namespace bascule::ref
