// JSON from outside: parsed with a bound on its depth, since nlohmann's writer and our readers recurse.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace bascule::ref {

inline constexpr int kMaxJsonDepth = 32;

// INVALID_ARGUMENT says where `text` stops being JSON, or that it nests deeper than kMaxJsonDepth.
absl::StatusOr<nlohmann::json> parse_json(std::string_view text);

}  // namespace bascule::ref
