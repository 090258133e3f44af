// Publishing a version: one send, and one more where that failed.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/sender/sender.h>

namespace bascule::ref {

// Blocks for twice the endpoint's timeout at most. `log` is told of a send that failed, and of workers that did not
// take the version.
absl::StatusOr<SendReport> publish_weights(Sender& sender, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
