// JSON of files that others wrote: bounded in depth, and refused when a key stands twice in one object.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule {

inline constexpr int kMaxJsonFileDepth = 64;

// Parses `text`; errors begin with `where`, the file or part of a file that it came from.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text, std::string_view where);

}  // namespace bascule
