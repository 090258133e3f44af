// Python's str() and repr(), and JSON as json.dumps() writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// str(). Returns UNIMPLEMENTED if Python would print an address.
absl::StatusOr<std::string> to_text(Machine& machine, const Value& value);
// repr()
absl::StatusOr<std::string> to_repr(Machine& machine, const Value& value);

std::string float_text(double number);  // repr() of a float: the shortest text that reads back as the same

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; nullopt: all in one line
  std::string between_items = ", ";
  std::string between_key_and_value = ": ";
  bool ascii = false;  // escapes all other characters
  bool sort_keys = false;
};
// json.dumps(). Returns INVALID_ARGUMENT if JSON has no such value.
absl::StatusOr<std::string> to_json(Machine& machine, const Value& value, const JsonStyle& style);

// Escapes &, <, >, ' and " as markupsafe does.
std::string html_escaped(std::string_view text);

}  // namespace bascule::ref::jinja
