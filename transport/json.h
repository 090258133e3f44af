// All JSON from outside (files, sockets and command lines) goes through this one parser. It bounds the depth, since
// nlohmann's writer and our readers recurse, and refuses a key that occurs twice in one object.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

inline constexpr int kMaxJsonDepth = 64;

// Parses `text`. Errors begin with `where`, which names the file or part of a file that the text comes from.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where);

}  // namespace bascule::inline v0
