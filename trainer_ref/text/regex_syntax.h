// Regular expressions as tokenizer.json writes them (Oniguruma's syntax), written for PCRE2.
//
// The two agree on nearly all that tokenizers use, but not on what \s, \w and \p{Han} mean; and some of Oniguruma's
// syntax means something else to PCRE2. The first is written out, the second is refused.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

// UNIMPLEMENTED names what of `pattern` is not read here.
absl::StatusOr<std::string> to_pcre2(std::string_view pattern);

}  // namespace bascule::ref
