// The memory that a run takes, from its flags and its plan.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/grpo/options/run_plan.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

// Reads the model's configuration, but no weights.
absl::StatusOr<MemoryPlan> memory_plan_of(const TrainFlags& flags, const RunPlan& plan);

// The parts of memory_plan_of().
absl::StatusOr<MemoryNeed> memory_need_of(const TrainFlags& flags, const RunPlan& plan);
UpdateRows update_rows_of(const TrainFlags& flags, const RunPlan& plan);

}  // namespace bascule::ref
