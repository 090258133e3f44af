// Checks for UTF-8, which names on the wire must be.
#pragma once

#include <string_view>

namespace bascule::inline v0 {

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace bascule::inline v0
