// The key that clients must send, where the engine was given one: "Authorization: Bearer KEY".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bascule::ref {

// A flag's text that tells an empty one from none: std::optional<std::string> of Abseil's flags reads "" as none.
struct KeyFlag {
  std::optional<std::string> text;
};
// NOLINTBEGIN(readability-identifier-naming): Abseil's hooks
bool AbslParseFlag(absl::string_view text, KeyFlag* flag, std::string* error);
std::string AbslUnparseFlag(const KeyFlag& flag);
// NOLINTEND(readability-identifier-naming)

// The first of these that is there: `flag`; the first line of `file`; the variable BASCULE_API_KEY, unless it is empty.
// Empty: none, anybody may ask. INVALID_ARGUMENT: both flag and file, one of them is empty, a file that cannot be read
// or is empty, or a key that no header can hold.
absl::StatusOr<std::string> find_api_key(const KeyFlag& flag, const KeyFlag& file);

// Whether the value of a header Authorization gives this key. The time it takes tells nothing of the key but its
// length.
bool gives_key(std::string_view authorization, std::string_view key);

}  // namespace bascule::ref
