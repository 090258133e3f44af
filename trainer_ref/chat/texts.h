// Python's string functions for templates. As in Python, positions and counts are in code points, although the texts
// here are UTF-8.
//
// Pure functions; any thread may call them. Their input must be well-formed UTF-8 (is_utf8): templates are checked when
// they are parsed, and JSON when it is converted to values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref::jinja {

class Machine;

bool is_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// Returns the code point that begins at `at`, and moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& text, char32_t code_point);

std::int64_t count_code_points(std::string_view text);
// The offset of each code point in bytes, then the text's size.
std::vector<std::size_t> code_point_offsets(std::string_view text);

// str.isspace() of one code point: what strip() removes and split() splits at.
bool is_space(char32_t code_point);

// str.isprintable() of one code point. Returns nullopt for one that Unicode 14 has not assigned.
std::optional<bool> is_printable(char32_t code_point);

// Whether the text has a decimal digit beyond ASCII, which Python's int() and float() read.
bool has_other_digits(std::string_view text);

// str.splitlines()
std::vector<std::string_view> split_lines(std::string_view text);

// strip(), of whitespace or of the code points of `characters`.
enum class Side { kLeft, kRight, kBoth };
std::string_view stripped(std::string_view text, Side side);
std::string_view stripped(std::string_view text, std::string_view characters, Side side);

// replace(), at most `count` times; a negative count replaces all.
absl::StatusOr<std::string> replaced(Machine& machine, std::string_view text, std::string_view from,
                                     std::string_view to, std::int64_t count);

// Python's upper(), lower() and capitalize(), and the filter title, whose words end at spaces, dashes and opening
// brackets. Returns UNIMPLEMENTED for the few characters whose other case has several forms, such as ß and Σ.
enum class Case { kUpper, kLower, kCapitalized, kTitle };
absl::StatusOr<std::string> in_case(std::string_view text, Case wanted);

}  // namespace bascule::ref::jinja
