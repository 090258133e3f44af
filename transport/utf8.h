// Text in UTF-8, as it must be on the wire.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bascule::inline v0 {

// By RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// The text, or, if it has more than `most` bytes, its beginning and "…": `most` bytes at most, of whole characters.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace bascule::inline v0
