// Reads YAML 1.2 as the values of JSON, for config files.
//
// A plain scalar is null, a boolean, a number or text by YAML's core schema, so `yes`, `on` and `1_000` are text. A
// quoted scalar is text. Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

// Parses `text`, which is one document; an empty one is null. INVALID_ARGUMENT begins with `where`, the name of the
// file, and the line. Besides what is not YAML, these are refused: text that is not printable UTF-8; more than
// kMaxJsonDepth levels; a key that occurs twice in one mapping, or is not a scalar; a second document; tags; infinities
// and NaN, which JSON lacks; and aliases. So there are never more values than bytes of `text`.
absl::StatusOr<nlohmann::json> parse_yaml(std::string_view text, std::string_view where);

}  // namespace bascule::inline v0
