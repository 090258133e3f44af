// The command line of bascule-train as TrainFlags.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

// Opens --device, which takes seconds; `log` gets the device that --device=auto stands for. INVALID_ARGUMENT names the
// flag that makes no sense, and what would.
absl::StatusOr<TrainFlags> parse_train_flags(const std::function<void(std::string_view)>& log = [](std::string_view) {
});

}  // namespace bascule::ref
