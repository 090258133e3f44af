// The one parser of JSON from outside: files, sockets and command lines. Its depth is bounded, since nlohmann's writer
// and our readers recurse, and a key that occurs twice in one object is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

inline constexpr int kMaxJsonDepth = 64;

// Parses `text`; errors begin with `where`, the file or part of a file that it comes from.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where);

}  // namespace bascule::inline v0
