// --dry-run: what a run would take in memory and time. It needs no engines. If the device is missing, it reports only
// the memory.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/options/run_plan.h>

namespace bascule::ref {

// Logs how much memory each part of the run takes, and how much its device has. If the device has enough, tries an
// update there with random weights, and logs how fast it is. Returns RESOURCE_EXHAUSTED if the device has too little
// memory; the text says what to change. Other errors concern flags, and a run would return them also.
absl::Status dry_run(const TrainFlags& flags, StartPoint start, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
