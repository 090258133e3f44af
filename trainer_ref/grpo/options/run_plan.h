// The plan of a run, worked out once from its flags, the checkpoint that it starts from, and its data.
//
//   parse_train_flags() ──▶ read_start() ──▶ prepare_run() or prepare_grpo() ──▶ GRPO: fit_plan() ──▶ the loop
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/grpo/options/resume.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

struct RunPlan {
  StartPoint start = {};
  RowTokens rows = {};          // of the training problems, before --drop-long
  std::string sync = {};        // the endpoint that weights are sent to
  ResumableConfig config = {};  // only for GRPO
};

// The part of the plan that depends on the problems that --drop-long keeps.
struct FittedPlan {
  std::int64_t steps = 0;           // the last step
  OptimizerOptions optimizer = {};  // with the end of its schedule
  RunConfig config = {};            // only for GRPO: written to the next checkpoint
};

struct PreparedRun {
  Task task;
  PromptWriter prompts;
  RunPlan plan;
  FittedPlan fitted;  // for all problems
};

// Reads the problems and the tokenizer, and checks every problem. INVALID_ARGUMENT names the flag.
absl::StatusOr<PreparedRun> prepare_run(const TrainFlags& flags, StartPoint start, std::string sync);

// For GRPO: also checks that the rewards can read the answers, and compares a resumed run with its flags (resume.h).
absl::StatusOr<PreparedRun> prepare_grpo(const TrainFlags& flags, StartPoint start, std::string sync,
                                         const std::function<void(std::string_view)>& log);

// For GRPO: fits the plan to `task`, from which --drop-long has removed problems.
absl::StatusOr<FittedPlan> fit_plan(const TrainFlags& flags, const RunPlan& plan, const Task& task,
                                    const std::function<void(std::string_view)>& log);

// The parts of prepare_run().

// Returns the problems of --task, --data and --eval-data; none if environments have them.
absl::StatusOr<Task> read_task_of(const TaskFlags& flags);

// Returns the last step, from --steps or from --epochs over `problems` problems. Returns INVALID_ARGUMENT if the
// resumed run has reached it already.
absl::StatusOr<std::int64_t> resolve_steps(const TrainFlags& flags, std::int64_t resumed_step, std::size_t problems);

// Lets the learning rate fall until the run's last optimizer step, unless the schedule has another end. Returns
// INVALID_ARGUMENT if the schedule would end within the warm-up.
absl::StatusOr<OptimizerOptions> resolve_schedule(const TrainFlags& flags, std::int64_t steps);

// Reads the model's tokenizer and, if `task` needs it, its chat template. Returns INVALID_ARGUMENT if there is no
// template, it uses an unsupported construct, or variables are given for a template that no problem needs.
absl::StatusOr<PromptWriter> read_prompt_writer(const ChatOptions& chat, const std::filesystem::path& model,
                                                const Task& task);

// Returns the lengths of the rows of `task`. Errors name a prompt that the model cannot read or, if supervised, an
// answer that it cannot learn.
absl::StatusOr<RowTokens> check_task(const TrainFlags& flags, const std::filesystem::path& model, const Task& task,
                                     const PromptWriter& prompts);

}  // namespace bascule::ref
