// Translates regular expressions of tokenizer.json (Oniguruma's syntax) to PCRE2's.
//
// The two agree on nearly everything that tokenizers use, but not on what \s, \w and \p{Han} mean, which is written
// out; some of Oniguruma's syntax means something else to PCRE2, and is refused.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

// UNIMPLEMENTED names the unsupported part of `pattern`.
absl::StatusOr<std::string> to_pcre2(std::string_view pattern);

}  // namespace bascule::ref
