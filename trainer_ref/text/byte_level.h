// The characters that represent bytes in byte-level vocabularies: printable ASCII and Latin-1 represent themselves, the
// other 68 bytes are U+0100 to U+0143 in order, so that a space is U+0120 (GPT-2's encoder.py).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bascule::ref {

// Appends one character for each byte of `text`.
void append_byte_level(std::string& out, std::string_view text);

// The byte that `character` represents, if any.
std::optional<char> byte_of(char32_t character);

// The bytes that `token` represents; the token itself if one of its characters represents none.
std::string bytes_of_token(std::string_view token);

}  // namespace bascule::ref
