// Characters of UTF-8, and Unicode's normal forms (by utf8proc). Every text here is UTF-8, which the callers have
// checked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bascule::ref {

// Bytes of the character that begins with `lead`.
constexpr std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The first character of `text`, which is not empty.
char32_t first_character(std::string_view text);

// Where the last character of `text` begins; `text` is not empty.
std::size_t last_character_at(std::string_view text);

void append_character(std::string& text, char32_t character);

// Unicode's property White_Space.
bool is_white_space(char32_t character);

// Returns how many bytes at the beginning of `bytes` cannot be changed by a later byte: all but a character that is cut
// at the end.
std::size_t utf8_prefix(std::string_view bytes);

// Returns `bytes` as UTF-8: each longest beginning of a character that is not continued, and each other invalid byte,
// becomes U+FFFD (the Unicode Standard, section 3.9: substitution of maximal subparts).
std::string repaired(std::string_view bytes);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normalized(std::string_view text, NormalForm form);

}  // namespace bascule::ref
