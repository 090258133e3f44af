// What follows the question mark of an endpoint: options by name, and what the values of the common ones may be.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// "slots=3&digest=off". Errors as of Endpoint::parse().
absl::Status set_options(Endpoint& endpoint, std::string_view query);

// Of a part of a URL. INVALID_ARGUMENT: a percent sign that is none, or a zero byte.
absl::StatusOr<std::string> percent_decoded(std::string_view text);
std::filesystem::path normal_path(std::string_view text);  // without a slash at the end

}  // namespace bascule::inline v0
