// The command line of bascule-train as TrainFlags.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

// Opens --device, which takes seconds; logs the device that --device=auto selects. INVALID_ARGUMENT names the wrong
// flag and a value that is right.
absl::StatusOr<TrainFlags> parse_train_flags(const std::function<void(std::string_view)>& log = [](std::string_view) {
});

}  // namespace bascule::ref
