// --resume: reads the checkpoint that a run starts from, and compares this run with the one that wrote it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/run_state.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

struct StartPoint {
  std::filesystem::path model = {};  // --model, or the resumed run's first model
  RunState resumed = {};             // its step is 0 if the run is new
};

// Reads the state of --resume. Returns INVALID_ARGUMENT if the run cannot continue under these flags, its first model
// is gone, or --out would overwrite the model.
absl::StatusOr<StartPoint> read_start(const TrainFlags& flags);

struct ResumableConfig {
  RunConfig run = {};                    // written to the next checkpoint
  std::filesystem::path reference = {};  // for the divergence: the run's first model
};

// Reads the model's and the data's files once. If the run differs from the one that --resume continues,
// INVALID_ARGUMENT names all differences; with --allow-changes, they are logged instead. The reference stays the model
// with which the run began.
absl::StatusOr<ResumableConfig> resolve_run_config(const TrainFlags& flags, const StartPoint& start,
                                                   const std::string& sync, const Task& task,
                                                   const std::function<void(std::string_view)>& log);

// Compares `task` in the same way, once --drop-long has removed the problems that exceed the engines' limits from it.
// With --drop-long, adds the fingerprint of `task` to `config`.
absl::StatusOr<RunConfig> resolve_kept_task(const TrainFlags& flags, const RunState& resumed, RunConfig config,
                                            const Task& task, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
