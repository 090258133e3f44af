// Before the first step: waits for the engines, and checks that they fit the problems and the policy.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>

namespace bascule::ref {

// Blocks until the engines at `urls` have joined, or until stopped. Returns DEADLINE_EXCEEDED after `timeout`; the text
// quotes what each engine reports, and `flag`, with which they should have been started.
absl::Status wait_for_engines(Sender& sender, const std::vector<std::string>& urls, const std::string& flag,
                              absl::Duration timeout, const std::function<bool()>& stopped);

// Checks the flags and the prompts against the engines' limits. With --drop-long, removes problems that are too long
// from `task`, and logs them. INVALID_ARGUMENT names the flag; UNAVAILABLE names an engine that does not answer.
absl::Status fit_engines(EnginePool& pool, const TrainFlags& flags, const PromptWriter& prompts, Task& task,
                         const std::function<void(std::string_view)>& log);

// For an adapter that is sent alone: whether each engine has the base model over which `policy` is trained. Samples
// tokens at each one, and compares their log-probabilities with the policy's own; it must have been sent as it is.
// FAILED_PRECONDITION names an engine, and says by how much they differ. `log` gets how much, for each.
absl::Status check_base_of_engines(EnginePool& pool, const Policy& policy,
                                   const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
