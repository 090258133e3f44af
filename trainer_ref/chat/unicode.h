// Texts as Python sees them: sequences of code points. Here they are UTF-8.
//
// Pure functions; any thread may call them. What they get must be well-formed UTF-8 (is_utf8): templates are checked
// when they are parsed, JSON by its parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bascule::ref::jinja {

bool is_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// The code point that begins at `at`, which moves behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& text, char32_t code_point);

std::int64_t count_code_points(std::string_view text);
// The byte at which each code point begins, and the text's size behind them.
std::vector<std::size_t> code_point_offsets(std::string_view text);

// str.isspace() of one code point: what strip() removes and split() splits at.
bool is_space(char32_t code_point);
// str.isprintable() of one code point: repr() escapes the others.
bool is_printable(char32_t code_point);

// Whether a digit beyond ASCII is there, which Python's int() and float() would read.
bool has_foreign_digit(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

// str.splitlines(); with `keep_ends`, each line has what ended it.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// str.upper(), str.lower(), and the title case of the first code point alone. lower() makes every capital sigma the one
// within a word; has_capital_sigma() tells callers to refuse such a text, since Python looks at what stands around it.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title_first(std::string_view text);
bool has_capital_sigma(std::string_view text);

}  // namespace bascule::ref::jinja
