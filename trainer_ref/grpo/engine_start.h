// Before the first step: the engines have joined, and the problems fit them.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/options/options.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>

namespace bascule::ref {

// Blocks until every engine of `options` has joined, or until stopped. DEADLINE_EXCEEDED, after the engine_timeout: it
// says what the engines say.
absl::Status wait_for_engines(Sender& sender, const TrainOptions& options, const std::function<bool()>& stopped);

// What the engines cannot take is found here. With --drop-long, problems that are too long leave `task`, and `log` is
// told. INVALID_ARGUMENT names the flag; UNAVAILABLE an engine that does not answer.
absl::Status fit_engines(EnginePool& pool, const TrainOptions& options, const PromptWriter& prompts, Task& task,
                         const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
