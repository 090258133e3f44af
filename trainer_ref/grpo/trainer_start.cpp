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
                                   Policy::Gradients gradients, const TrainOptions& options) {
  absl::StatusOr<Policy> policy = Policy::read(folder, gradients, options.device, options.compute);
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
  BASCULE_TRY(settle_steps(options, task));
  BASCULE_ASSIGN(PromptWriter prompts, read_prompt_writer(options, task));
  BASCULE_TRY(check_task(options, task, prompts));
  BASCULE_TRY(annotate(check_answers(options.rewards, task.train), cat("--reward=", options.reward)));
  BASCULE_TRY(settle_origin(options, task, log));
  BASCULE_ASSIGN(Policy policy,
                 options.resume.empty()
                     ? read_policy("model", options.model, kModelAdvice, Policy::Gradients::kTracked, options)
                     : read_policy("resume", options.resume, kResumeAdvice, Policy::Gradients::kTracked, options));
  absl::StatusOr<std::vector<WeightedReward>> rewards =
      make_rewards(options.rewards, {.timeout = options.reward_timeout, .log = log, .stopped = stopped});
  BASCULE_TRY(of_flag(rewards.status(), "reward", options.reward, kRewardAdvice));
  absl::StatusOr<Sender> sender =
      Sender::listen({.endpoint = options.sync,
                      .threads = options.threads,
                      .contract = contract_of(policy.config(), prompts.tokenizer().fingerprint()),
                      .log = log});
  BASCULE_TRY(annotate(sender.status(), cat("--sync=", options.sync)));
  BASCULE_TRY(sender->register_model(source_of(policy)));

  Learner learner(std::move(policy), options.optimizer, options.update);
  if (options.needs_reference()) {
    BASCULE_ASSIGN(Policy reference,
                   read_policy("model", options.reference, kModelAdvice, Policy::Gradients::kNone, options));
    learner.measure_from(std::move(reference));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options), std::move(stopped), std::move(log), std::move(task),
                                               std::move(prompts), std::move(learner), *std::move(sender)));
  trainer->rewards_ = *std::move(rewards);
  if (!trainer->options_.resume.empty()) BASCULE_TRY(trainer->resume());
  return trainer;
}

Trainer::Trainer(TrainOptions options, std::function<bool()> stopped, std::function<void(std::string_view)> log,
                 Task task, PromptWriter prompts, Learner learner, Sender sender)
    : options_(std::move(options)),
      stopped_(std::move(stopped)),
      log_(std::move(log)),
      task_(std::move(task)),
      prompts_(std::move(prompts)),
      learner_(std::move(learner)),
      sender_(std::move(sender)),
      filter_({.max_staleness = options_.max_staleness, .min_batch = options_.min_batch, .log = log_}) {}

absl::Status Trainer::resume() {
  const RunState& state = options_.resumed;
  BASCULE_TRY(of_flag(learner_.restore(options_.resume, state), "resume", options_.resume.string(), kResumeAdvice));
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
  for (const auto& [name, tensor] : learner_.policy().weights()) parameters += tensor.numel();
  run["parameters"] = parameters;
  BASCULE_TRY(write_file(options_.out / "run.json", run.dump(2) + "\n"));
  log_started_ = true;
  return absl::OkStatus();
}

}  // namespace bascule::ref
