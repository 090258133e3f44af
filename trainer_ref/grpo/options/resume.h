// --resume: whether the run that wrote a checkpoint is the one that these flags describe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/options/options.h>

namespace bascule::ref {

// The flags whose value changes what a run learns, as they stand: "learning-rate" → "1e-06".
std::map<std::string, std::string> flags_that_matter();

// Fills options.run_config and options.reference; reads the model's and the data's files once. INVALID_ARGUMENT names
// all that differs from the run that --resume goes on with, unless --allow-changes has been given: then `log` is told
// of it. The reference stays the model that the run began with.
absl::Status resolve_run_config(TrainOptions& options, const Task& task,
                                const std::function<void(std::string_view)>& log);

// The same for the problems that the engines' limits left of `task`, with --drop-long: fills their part of
// options.run_config.
absl::Status resolve_kept_task(TrainOptions& options, const Task& task,
                               const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
