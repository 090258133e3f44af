// Python's format() of texts and numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

class Machine;

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

// Reads the digits of a width or precision at `at`, and moves it past them. Returns `otherwise` if there are none.
absl::StatusOr<std::int64_t> read_size(std::string_view text, std::size_t& at, std::int64_t otherwise);

}  // namespace bascule::ref::jinja
