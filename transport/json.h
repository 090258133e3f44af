// All JSON from outside (files, sockets and command lines) goes through this parser, or through JsonValue::parse() on
// threads that must survive without memory. Both bound the depth, since nlohmann's writer and our readers recurse, and
// refuse a key that occurs twice in one object.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

inline constexpr int kMaxJsonDepth = 64;

// Parses `text`. Errors begin with `where`, which names the file or part of a file that the text comes from.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where);

// Checks only the brackets, so that deep nesting is refused before a parser spends memory on it.
bool nests_deeper_than(std::string_view text, int limit);

}  // namespace bascule::inline v0
