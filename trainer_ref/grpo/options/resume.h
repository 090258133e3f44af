// --resume: the checkpoint that a run starts from, and whether the run that wrote it is the one that these flags
// describe.
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
  std::filesystem::path model = {};  // --model, or the first model of the run that is resumed
  RunState resumed = {};             // its step is 0 if the run is new
};

// Reads the state of --resume. INVALID_ARGUMENT: the run cannot continue under these flags, its first model is gone, or
// --out would overwrite the model.
absl::StatusOr<StartPoint> read_start(const TrainFlags& flags);

struct ResumableConfig {
  RunConfig run = {};                    // what the next checkpoint says that this run is made of
  std::filesystem::path reference = {};  // of the divergence: the run's first model
};

// Reads the model's and the data's files once. INVALID_ARGUMENT names all that differs from the run that --resume goes
// on with, unless --allow-changes has been given: then `log` gets the differences. The reference stays the model that
// the run began with.
absl::StatusOr<ResumableConfig> resolve_run_config(const TrainFlags& flags, const StartPoint& start,
                                                   const std::string& sync, const Task& task,
                                                   const std::function<void(std::string_view)>& log);

// The same for the problems that the engines' limits left of `task`, with --drop-long: adds them to `config`.
absl::StatusOr<RunConfig> resolve_kept_task(const TrainFlags& flags, const RunState& resumed, RunConfig config,
                                            const Task& task, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
