#include <bascule/trainer_ref/grpo/supervised_run.h>

#include <string>

#include <bascule/trainer_ref/grpo/dry_run.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/grpo/run/run_folder.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

absl::StatusOr<Policy> policy_to_teach(const TrainOptions& options, const SupervisedHooks& hooks) {
  absl::StatusOr<Policy> policy =
      Policy::read(options.model, Policy::Gradients::kTracked, options.device, options.compute);
  if (absl::IsNotFound(policy.status())) {
    hooks.log("no weights in the folder of --model: starting from random ones");
    BASCULE_ASSIGN(const ModelConfig config, read_config(options.model));
    policy = random_policy(config, options.seed, options.device, options.compute);
  }
  BASCULE_TRY(of_flag(policy.status(), "model", options.model.string(), kModelAdvice));
  return policy;
}

absl::Status train(Policy& policy, const PromptWriter& prompts, const Task& task, const TrainOptions& options,
                   const SupervisedHooks& hooks) {
  BASCULE_ASSIGN(const MemoryPlan plan, plan_of(options));
  const auto say_memory = [&] {
    if (const std::string line = measured_beside(plan, options.device); !line.empty()) hooks.log(line);
  };
  try {
    return train_supervised(policy, prompts, task,
                            {.steps = options.steps,
                             .problems_per_step = options.prompts_per_step,
                             .micro_batch = options.update.micro_batch,
                             .micro_batch_tokens = options.update.micro_batch_tokens,
                             .label_noise = options.label_noise,
                             .seed = options.seed,
                             .max_bad_steps = options.max_bad_steps,
                             .optimizer = options.optimizer,
                             .log = hooks.log,
                             .stopped = hooks.stopped,
                             .after_first_step = say_memory});
  } catch (const c10::Error& error) {
    return device_failed(options.device, error);
  }
}

absl::Status save(const Policy& policy, const TrainOptions& options) {
  if (!is_finite(policy.weights()))
    return failed_precondition(options.out.string(),
                               ": expected finite weights, found some that are not, and wrote "
                               "nothing; give a smaller --learning-rate");
  return write_checkpoint(options.out, options.model, policy.weights(), DType::kBF16);
}

}  // namespace

absl::Status run_supervised(TrainOptions options, const SupervisedHooks& hooks) {
  BASCULE_ASSIGN(const RunFolder folder, RunFolder::take_new(options.out));
  BASCULE_ASSIGN(const Task task, read_task_of(options));
  BASCULE_TRY(resolve_steps(options, task));
  BASCULE_TRY(resolve_schedule(options));
  BASCULE_ASSIGN(const PromptWriter prompts, read_prompt_writer(options, task));
  BASCULE_TRY(check_task(options, task, prompts));
  BASCULE_ASSIGN(Policy policy, policy_to_teach(options, hooks));
  hooks.began();

  const absl::Status trained = train(policy, prompts, task, options, hooks);
  const absl::Status saved = save(policy, options);
  const std::string way_on =
      cat("; ", options.out.string(), " has the weights; give it as --model to train on from them");
  if (!trained.ok()) return saved.ok() ? absl::Status(trained.code(), cat(message_of(trained), way_on)) : trained;
  BASCULE_TRY(saved);
  const absl::StatusOr<double> accuracy = greedy_accuracy(policy, prompts, task.held_out, options.update.micro_batch,
                                                          options.update.micro_batch_tokens, hooks.stopped);
  if (!accuracy.ok()) return absl::Status(accuracy.status().code(), cat(message_of(accuracy.status()), way_on));
  hooks.log(cat("held out: ", *accuracy, " right with the likeliest token each time"));
  return absl::OkStatus();
}

}  // namespace bascule::ref
