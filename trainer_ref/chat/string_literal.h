// What stands between the quotes of a text in a template, and how Python writes a text.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref::jinja {

// Resolves escapes as Python's codec unicode-escape does. INVALID_ARGUMENT: a broken escape. UNIMPLEMENTED: \N{…}, and
// half of a surrogate pair.
absl::StatusOr<std::string> unescape(std::string_view literal);

// repr(): quoted, and escaped where it must be.
std::string text_repr(std::string_view text);

}  // namespace bascule::ref::jinja
