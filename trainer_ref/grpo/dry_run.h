// --dry-run: what a run would take in memory and time. It needs no engines; without the device it reports memory only.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/options/run_plan.h>

namespace bascule::ref {

// Logs how much memory each part of the run takes, and how much its device has. If that is enough, tries an update on
// the device with random weights, and logs how fast it is. RESOURCE_EXHAUSTED: the device has too little memory; the
// text says what to change. Other errors are about flags; a run returns the same ones.
absl::Status dry_run(const TrainFlags& flags, StartPoint start, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
