// The key that clients must send, if the engine was given one: "Authorization: Bearer KEY".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bascule::ref {

// A flag's text. It distinguishes an empty text from a missing one, which Abseil's std::optional<std::string> cannot.
struct KeyFlag {
  std::optional<std::string> text;
};
// NOLINTBEGIN(readability-identifier-naming): Abseil's hooks
bool AbslParseFlag(absl::string_view text, KeyFlag* flag, std::string* error);
std::string AbslUnparseFlag(const KeyFlag& flag);
// NOLINTEND(readability-identifier-naming)

// Returns the first of these: `flag`; the first line of `file`; the variable BASCULE_API_KEY, unless it is empty. With
// an empty key, the engine serves anybody. Returns INVALID_ARGUMENT if both flag and file are given, if one is empty,
// if the file cannot be read or is empty, or if no header can hold the key.
absl::StatusOr<std::string> find_api_key(const KeyFlag& flag, const KeyFlag& file);

// Whether an Authorization header has this key. The time it takes reveals only the key's length.
bool gives_key(std::string_view authorization, std::string_view key);

}  // namespace bascule::ref
