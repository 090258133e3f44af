// The key that clients must send, where the engine was given one: "Authorization: Bearer KEY".
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

// The first of these that is there: `flag`; the first line of `file`; the variable BASCULE_API_KEY. Empty: none,
// anybody may ask. INVALID_ARGUMENT: both flag and file, a file that cannot be read or is empty, or a key that no
// header can hold.
absl::StatusOr<std::string> find_api_key(const std::string& flag, const std::filesystem::path& file);

// Whether the value of a header Authorization gives this key. The time it takes tells nothing of the key but its
// length.
bool gives_key(std::string_view authorization, std::string_view key);

}  // namespace bascule::ref
