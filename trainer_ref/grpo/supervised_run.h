// A run of --supervised, from its flags to its checkpoint.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/options/run_plan.h>

namespace bascule::ref {

struct SupervisedRunHooks {
  std::function<void(std::string_view)> log;
  std::function<bool()> stopped;  // called before every step, and between the micro-batches of the evaluation
  std::function<void()> began;    // called once all flags have been checked
};

// Trains, writes --out, and evaluates on the held-out problems. A run that is stopped or fails writes the weights of
// its last step if they are finite, and logs that. Returns CANCELLED if it was stopped. INVALID_ARGUMENT names a flag.
absl::Status run_supervised(const TrainFlags& flags, StartPoint start, const SupervisedRunHooks& hooks);

}  // namespace bascule::ref
