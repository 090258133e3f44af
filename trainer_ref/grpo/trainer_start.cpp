// How a Trainer comes to be: reading what it needs, and what a resumed run left.
#include <chrono>
#include <utility>

#include <bascule/trainer_ref/grpo/json_lines.h>
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

// The policy's tensors themselves: what the optimizer writes is what the next send reads. Those that engines on GPUs
// read as one stand side by side: the layout of a single copy is final before any engine could say that it wishes so.
std::unique_ptr<TensorSource> source_of(const Policy& policy) {
  WeightMap left = policy.weights();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const JoinedWeights& joined : joined_weights(policy.config()))
    for (const std::string& part : joined.parts) {
      tensors.emplace_back(part, left.at(part));
      left.erase(part);
    }
  tensors.insert(tensors.end(), left.begin(), left.end());
  return libtorch::tensors(std::move(tensors));
}

// Says every minute how far an update is.
std::function<void(std::size_t, std::size_t)> news_of_update(std::function<void(std::string_view)> log) {
  using Clock = std::chrono::steady_clock;
  return [log = std::move(log), last = Clock::time_point()](std::size_t done, std::size_t of) mutable {
    constexpr std::chrono::minutes kInterval{1};
    if (done == 1) last = Clock::now();
    if (done == of || Clock::now() - last < kInterval) return;
    last = Clock::now();
    log(cat("the update is through ", done, " of ", of, " micro-batches"));
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::create(TrainOptions options, std::function<bool()> stopped,
                                                         std::function<void(std::string_view)> log) {
  BASCULE_ASSIGN(Task task, read_task_of(options));
  BASCULE_TRY(settle_steps(options, task));
  BASCULE_TRY(settle_schedule(options));
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

  const bool single_copy = is_single_copy(options.sync);
  PolicySender policy_sender(*std::move(sender), single_copy, log);
  options.update.after_part = news_of_update(log);
  Learner learner(std::move(policy), options.optimizer, options.update);
  if (single_copy) BASCULE_TRY(learner.release_memory());  // the weights have moved into the slot
  if (options.needs_reference()) {
    BASCULE_ASSIGN(Policy reference,
                   read_policy("model", options.reference, kModelAdvice, Policy::Gradients::kNone, options));
    learner.measure_from(std::move(reference));
  }
  std::unique_ptr<MetricsPage> page;
  if (!options.metrics.empty()) {
    BASCULE_ASSIGN(page, MetricsPage::serve(options.metrics));
    log(cat("metrics at ", page->url(), "/metrics"));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options), std::move(stopped), std::move(log), std::move(task),
                                               std::move(prompts), std::move(learner), std::move(policy_sender)));
  trainer->page_ = std::move(page);
  trainer->rewards_ = *std::move(rewards);
  if (!trainer->options_.resume.empty()) BASCULE_TRY(trainer->resume());
  return trainer;
}

Trainer::Trainer(TrainOptions options, std::function<bool()> stopped, std::function<void(std::string_view)> log,
                 Task task, PromptWriter prompts, Learner learner, PolicySender sender)
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
