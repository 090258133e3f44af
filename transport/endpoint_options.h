// Parses what follows the question mark of an endpoint: options by name, and the values that the common ones allow.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// Sets the options of `query`, such as "slots=3&digest=off". Returns the errors of Endpoint::parse().
absl::Status set_options(Endpoint& endpoint, std::string_view query);

// Decodes a part of a URL. Returns INVALID_ARGUMENT for a percent sign without two hexadecimal digits, or a zero byte.
absl::StatusOr<std::string> percent_decoded(std::string_view text);
std::filesystem::path normal_path(std::string_view text);  // without a trailing slash

}  // namespace bascule::inline v0
