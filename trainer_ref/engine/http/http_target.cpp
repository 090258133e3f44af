#include <bascule/trainer_ref/engine/http/http_target.h>

#include <charconv>

#include "absl/strings/match.h"

namespace bascule::ref {

std::string without_percents(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      plain += static_cast<char>(byte);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<std::string> query_values(std::string_view target, std::string_view name) {
  std::vector<std::string> values;
  std::size_t begin = target.find('?');
  while (begin != target.npos) {
    const std::string_view rest = target.substr(begin + 1);
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      values.push_back(without_percents(pair.substr(name.size() + 1)));
    begin = target.find('&', begin + 1);
  }
  return values;
}

std::optional<std::string> query_value(std::string_view target, std::string_view name) {
  const std::vector<std::string> values = query_values(target, name);
  return values.empty() ? std::nullopt : std::optional(values.front());
}

std::optional<bool> query_flag(std::string_view target, std::string_view name, bool otherwise) {
  const std::optional<std::string> value = query_value(target, name);
  if (!value) return otherwise;
  if (*value == "1" || absl::EqualsIgnoreCase(*value, "true")) return true;
  if (*value == "0" || absl::EqualsIgnoreCase(*value, "false")) return false;
  return std::nullopt;
}

}  // namespace bascule::ref
