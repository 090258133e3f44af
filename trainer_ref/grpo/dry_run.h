// --dry-run: what a run would take, in memory and time, said without engines, and where its device is missing without
// that.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/grpo/options/options.h>

namespace bascule::ref {

// Of the run that `options` describe, whose task check_task() has looked at. Reads the model's configuration, no
// weights.
absl::StatusOr<MemoryPlan> plan_of(const TrainOptions& options);

// Tells `log` what the run takes, by part, and what its device has; where that is enough, tries an update there with
// random weights, and tells how fast it is. RESOURCE_EXHAUSTED where it is too little: the text says what to change.
// Other errors: of flags, as a run's.
absl::Status dry_run(TrainOptions options, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
