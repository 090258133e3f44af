// Python's ways to format a text: str.format(), format(), and the operator %.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

// `text`.format(*positional, **named), as Jinja2's sandbox computes it. INVALID_ARGUMENT where Python raises;
// UNIMPLEMENTED for rare parts of the syntax, such as !a and the types c and n.
absl::StatusOr<Value> format_braces(Machine& machine, std::string_view text, const Arguments& arguments);

// `text` % `values`: a tuple of values, a dict for %(name)s, or one value. Errors as above.
absl::StatusOr<Value> format_percent(Machine& machine, std::string_view text, const Value& values);

// How a value is written: the mini-language after the colon of "{:>8.2f}", and the same parts of "%8.2f".
struct FormatSpec {
  std::string fill = " ";  // one code point
  char align = 0;          // one of < > = ^, or 0: the default of the value's type
  char sign = '-';         // for numbers: '-', '+' or ' '
  bool alternate = false;  // #: 0x before hexadecimal digits
  char grouping = 0;       // ',' or '_' between thousands
  char type = 0;
  std::int64_t width = 0, precision = -1;
};
absl::StatusOr<std::string> format_text(Machine& machine, std::string_view text, const FormatSpec& spec);
absl::StatusOr<std::string> format_number(Machine& machine, const Value& number, const FormatSpec& spec);

}  // namespace bascule::ref::jinja
