#include <bascule/trainer_ref/grpo/supervised_run.h>

#include <string>
#include <utility>

#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/grpo/options/memory_plan_of.h>
#include <bascule/trainer_ref/grpo/run/run_folder.h>
#include <bascule/trainer_ref/grpo/starting_policy.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

absl::Status train(Policy& policy, const PreparedRun& run, const TrainFlags& flags, const SupervisedRunHooks& hooks) {
  BASCULE_ASSIGN(const MemoryPlan memory, memory_plan_of(flags, run.plan));
  const auto log_memory = [&] {
    if (const std::string line = measured_beside(memory, flags.compute.device); !line.empty()) hooks.log(line);
  };
  try {
    return train_supervised(policy, run.prompts, run.task,
                            {.steps = run.fitted.steps,
                             .problems_per_step = flags.rollouts.prompts_per_step,
                             .micro_batch = flags.learn.update.micro_batch,
                             .micro_batch_tokens = flags.learn.update.micro_batch_tokens,
                             .label_noise = flags.learn.label_noise,
                             .seed = flags.rollouts.seed,
                             .max_bad_steps = flags.learn.max_bad_steps,
                             .optimizer = run.fitted.optimizer},
                            {.log = hooks.log, .stopped = hooks.stopped, .after_first_step = log_memory});
  } catch (const c10::Error& error) {
    return device_failed(flags.compute.device, error);
  }
}

absl::Status save(const Policy& policy, const std::filesystem::path& model, const std::filesystem::path& out) {
  if (!is_finite(policy.trained()))
    return failed_precondition(out.string(),
                               ": expected finite weights, found some that are not, and wrote "
                               "nothing; give a smaller --learning-rate");
  if (policy.adapter()) return write_adapter(out, *policy.adapter());
  return write_checkpoint(out, model, policy.weights(), DType::kBF16);
}

}  // namespace

absl::Status run_supervised(const TrainFlags& flags, StartPoint start, const SupervisedRunHooks& hooks) {
  BASCULE_ASSIGN(const RunFolder folder, RunFolder::take_new(flags.out));
  BASCULE_ASSIGN(const PreparedRun run, prepare_run(flags, std::move(start), flags.engines.sync));
  const std::filesystem::path& model = run.plan.start.model;
  BASCULE_ASSIGN(Policy policy, starting_policy(flags, run.plan.start, hooks.log, hooks.stopped));
  hooks.began();

  const absl::Status trained = train(policy, run, flags, hooks);
  const absl::Status saved = save(policy, model, flags.out);
  const std::string way_on = cat("; ", flags.out.string(), " has the ",
                                 flags.lora.on ? "adapter; give it as --adapter to continue from it"
                                               : "weights; give it as --model to continue from them");
  if (!trained.ok()) return saved.ok() ? absl::Status(trained.code(), cat(message_of(trained), way_on)) : trained;
  BASCULE_TRY(saved);
  const absl::StatusOr<double> accuracy =
      greedy_accuracy(policy, run.prompts, run.task.held_out, flags.learn.update.micro_batch,
                      flags.learn.update.micro_batch_tokens, hooks.stopped);
  if (!accuracy.ok()) return absl::Status(accuracy.status().code(), cat(message_of(accuracy.status()), way_on));
  hooks.log(cat("held out: ", *accuracy, " right with the likeliest tokens"));
  return absl::OkStatus();
}

}  // namespace bascule::ref
