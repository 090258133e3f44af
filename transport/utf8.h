// Checks that text is UTF-8, as names on the wire must be.
#pragma once

#include <string_view>

namespace bascule::inline v0 {

// By RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace bascule::inline v0
