// How a Trainer comes to be: reading what it needs, and what a resumed run left.
#include <bascule/trainer_ref/grpo/resume.h>
#include <bascule/trainer_ref/grpo/trainer.h>
#include <bascule/trainer_ref/model/contract.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

// What is wrong with it is wrong with the flag that names it.
absl::StatusOr<Policy> read_policy(std::string_view flag, const std::filesystem::path& folder, std::string_view advice,
                                   Policy::Gradients gradients, at::Device device) {
  absl::StatusOr<Policy> policy = Policy::read(folder, gradients, device);
  if (!policy.ok()) return of_flag(policy.status(), flag, folder.string(), advice);
  return policy;
}

// The policy's tensors themselves: what the optimizer writes is what the next send reads.
std::unique_ptr<TensorSource> source_of(const Policy& policy) {
  return libtorch::tensors({policy.weights().begin(), policy.weights().end()});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::create(TrainOptions options, std::function<bool()> stopped,
                                                         std::function<void(std::string_view)> log) {
  BASCULE_ASSIGN(Task task, read_task_of(options));
  const std::string model = options.model.string();
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(options.model);
  BASCULE_TRY(of_flag(tokenizer.status(), "model", model, kModelAdvice));
  BASCULE_TRY(check_task(options, task, *tokenizer));
  BASCULE_TRY(settle_origin(options, task, log));
  BASCULE_ASSIGN(Policy policy, options.resume.empty() ? read_policy("model", options.model, kModelAdvice,
                                                                     Policy::Gradients::kTracked, options.device)
                                                       : read_policy("resume", options.resume, kResumeAdvice,
                                                                     Policy::Gradients::kTracked, options.device));
  absl::StatusOr<std::vector<WeightedReward>> rewards =
      make_rewards(options.rewards, {.timeout = options.reward_timeout, .log = log});
  BASCULE_TRY(of_flag(rewards.status(), "reward", options.reward, kRewardAdvice));
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = options.sync,
                                                  .threads = options.threads,
                                                  .contract = contract_of(policy.config(), tokenizer->fingerprint()),
                                                  .log = log});
  BASCULE_TRY(annotate(sender.status(), cat("--sync=", options.sync)));
  BASCULE_TRY(sender->register_model(source_of(policy)));

  std::unique_ptr<Trainer> trainer(
      new Trainer(std::move(options), std::move(task), *std::move(tokenizer), std::move(policy), *std::move(sender)));
  trainer->stopped_ = std::move(stopped);
  trainer->log_ = std::move(log);
  trainer->rewards_ = *std::move(rewards);
  if (trainer->options_.needs_reference()) {
    BASCULE_ASSIGN(trainer->reference_, read_policy("model", trainer->options_.reference, kModelAdvice,
                                                    Policy::Gradients::kNone, trainer->options_.device));
  }
  if (!trainer->options_.resume.empty()) BASCULE_TRY(trainer->resume());
  return trainer;
}

Trainer::Trainer(TrainOptions options, Task task, Tokenizer tokenizer, Policy policy, Sender sender)
    : options_(std::move(options)),
      task_(std::move(task)),
      tokenizer_(std::move(tokenizer)),
      policy_(std::move(policy)),
      optimizer_(policy_.weights(), options_.optimizer),
      sender_(std::move(sender)) {}

absl::Status Trainer::resume() {
  const RunState& state = options_.resumed;
  BASCULE_TRY(of_flag(restore_optimizer(options_.resume, state, optimizer_), "resume", options_.resume.string(),
                      kResumeAdvice));
  last_step_ = saved_step_ = state.step;
  saved_ = options_.resume;
  return absl::OkStatus();
}

// A new run starts its files afresh, a resumed one goes on behind its step.
absl::Status Trainer::start_log() {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const char* name : {"metrics.jsonl", "completions.jsonl"}) {
    if (last_step_ == 0)
      fs::remove(options_.out / name, error);
    else
      BASCULE_TRY(keep_steps(options_.out / name, last_step_));
  }
  if (const auto lines = read_json_lines(options_.out / "metrics.jsonl"); lines.ok() && !lines->empty())
    elapsed_before_ = lines->back().value("elapsed_seconds", 0.0);

  nlohmann::json run{{"about", options_.about}, {"engines", options_.engines}, {"sync", options_.sync}};
  for (const auto& [name, value] : flags_given()) run["flags"][name] = value;
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : policy_.weights()) parameters += tensor.numel();
  run["parameters"] = parameters;
  BASCULE_TRY(write_file(options_.out / "run.json", run.dump(2) + "\n"));
  log_started_ = true;
  return absl::OkStatus();
}

}  // namespace bascule::ref
