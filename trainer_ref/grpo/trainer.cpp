#include <bascule/trainer_ref/grpo/trainer.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/dry_run.h>
#include <bascule/trainer_ref/grpo/engine_start.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/options/resume.h>
#include <bascule/trainer_ref/grpo/reward/advantage.h>
#include <bascule/trainer_ref/grpo/reward/overlong.h>
#include <bascule/trainer_ref/grpo/rollout/evaluation.h>
#include <bascule/trainer_ref/grpo/run/telemetry.h>
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// What is wrong with it is wrong with the flag that names it.
absl::StatusOr<Policy> read_policy(std::string_view flag, const std::filesystem::path& folder, std::string_view advice,
                                   Policy::Gradients gradients, const TrainOptions& options) {
  absl::StatusOr<Policy> policy = Policy::read(folder, gradients, options.device, options.compute);
  if (!policy.ok()) return of_flag(policy.status(), flag, folder.string(), advice);
  return policy;
}

std::string quoted(const nlohmann::json& text) {  // whatever bytes it has
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Learner> make_learner(const TrainOptions& options, Policy policy) {
  Learner learner(std::move(policy), options.optimizer, options.update);
  if (is_single_copy(options.sync)) BASCULE_TRY(learner.release_memory());  // the weights have moved into the slot
  if (options.needs_reference()) {
    BASCULE_ASSIGN(Policy reference,
                   read_policy("model", options.reference, kModelAdvice, Policy::Gradients::kNone, options));
    learner.measure_from(std::move(reference));
  }
  if (!options.resume.empty())
    BASCULE_TRY(
        of_flag(learner.restore(options.resume, options.resumed), "resume", options.resume.string(), kResumeAdvice));
  return learner;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::create(TrainOptions options, std::function<bool()> stopped,
                                                         std::function<void(std::string_view)> log) {
  BASCULE_ASSIGN(Task task, read_task_of(options));
  BASCULE_TRY(resolve_steps(options, task));
  // Where problems may be dropped, the run's end is known only behind that.
  if (!options.drop_long || options.epochs == 0) BASCULE_TRY(resolve_schedule(options));
  BASCULE_ASSIGN(PromptWriter prompts, read_prompt_writer(options, task));
  BASCULE_TRY(check_task(options, task, prompts));
  BASCULE_TRY(annotate(check_answers(options.rewards, task.train), cat("--reward=", options.reward)));
  BASCULE_TRY(resolve_run_config(options, task, log));
  BASCULE_ASSIGN(Policy policy,
                 options.resume.empty()
                     ? read_policy("model", options.model, kModelAdvice, Policy::Gradients::kTracked, options)
                     : read_policy("resume", options.resume, kResumeAdvice, Policy::Gradients::kTracked, options));
  absl::StatusOr<std::vector<WeightedReward>> rewards =
      make_rewards(options.rewards, {.timeout = options.reward_timeout, .log = log, .stopped = stopped});
  BASCULE_TRY(of_flag(rewards.status(), "reward", options.reward, kRewardAdvice));
  absl::StatusOr<PolicySender> sender =
      PolicySender::open({.endpoint = options.sync,
                          .threads = options.threads,
                          .compatibility_key = compatibility_key_of(policy.config(), prompts.tokenizer().fingerprint()),
                          .log = log},
                         policy);
  BASCULE_TRY(annotate(sender.status(), cat("--sync=", options.sync)));
  options.update.after_part = news_of_update(log);
  BASCULE_ASSIGN(Learner learner, make_learner(options, std::move(policy)));
  std::unique_ptr<MetricsPage> page;
  if (!options.metrics.empty()) {
    BASCULE_ASSIGN(page, MetricsPage::serve(options.metrics));
    log(cat("metrics at ", page->url(), "/metrics"));
  }
  RunLog run_log({.folder = options.out, .saves = options.save_every > 0, .line = log}, std::move(page));
  return std::unique_ptr<Trainer>(new Trainer(std::move(options), std::move(stopped), std::move(log), std::move(task),
                                              std::move(prompts), std::move(learner), *std::move(rewards),
                                              *std::move(sender), std::move(run_log)));
}

Trainer::Trainer(TrainOptions options, std::function<bool()> stopped, Log log, Task task, PromptWriter prompts,
                 Learner learner, std::vector<WeightedReward> rewards, PolicySender sender, RunLog run_log)
    : options_(std::move(options)),
      stopped_(std::move(stopped)),
      log_(std::move(log)),
      task_(std::move(task)),
      prompts_(std::move(prompts)),
      learner_(std::move(learner)),
      rewards_(std::move(rewards)),
      sender_(std::move(sender)),
      run_log_(std::move(run_log)),
      last_step_(options_.resumed.step),
      saved_step_(options_.resumed.step),
      saved_(options_.resume) {}

absl::Status Trainer::run() {
  absl::Status status = begin();
  if (status.ok()) status = train();
  if (absl::IsCancelled(status) && stopped_()) status = absl::OkStatus();  // a wait ended as it was told to
  const absl::Status ended = end();
  if (status.ok()) return ended;
  if (!ended.ok() && ended != status) log_(message_of(ended));
  return status;
}

absl::Status Trainer::train() {
  while (last_step_ < options_.steps && !stopped_()) {
    const std::int64_t now = last_step_ + 1;
    BASCULE_ASSIGN(StepMetrics metrics, step(now));
    const bool last = now == options_.steps;
    if (last || (options_.eval_every > 0 && now % options_.eval_every == 0)) {
      // The step was trained and counts, whatever becomes of its evaluation.
      if (const absl::StatusOr<nlohmann::json> completions = evaluate_into(metrics); completions.ok())
        BASCULE_TRY(run_log_.add_completions(now, *completions));
      else
        log_(cat("step ", now, " was not evaluated: ", message_of(completions.status())));
    }
    BASCULE_TRY(run_log_.add(metrics));
    BASCULE_TRY(count_bad_steps(metrics));
    if (options_.save_every > 0 && now % options_.save_every == 0) BASCULE_TRY(save(now));
  }
  return absl::OkStatus();
}

// Weights that give no finite gradient rarely find back by themselves.
absl::Status Trainer::count_bad_steps(const StepMetrics& metrics) {
  const bool is_bad = metrics.update.updates == 0 && metrics.update.skipped > 0;
  bad_steps_ = is_bad ? bad_steps_ + 1 : 0;
  if (bad_steps_ < options_.max_bad_steps) return absl::OkStatus();
  return failed_precondition(
      "steps ", metrics.step - bad_steps_ + 1, " to ", metrics.step,
      ": expected a finite loss and finite gradients, found none; the weights are those of step ",
      metrics.step - bad_steps_,
      "; look at the rewards, continue from an earlier checkpoint with "
      "a smaller --learning-rate, or give a larger --max-bad-steps than ",
      options_.max_bad_steps);
}

// One step of GRPO.
absl::StatusOr<StepMetrics> Trainer::step(std::int64_t step) {
  StepTelemetry telemetry(step);
  BASCULE_ASSIGN(auto rollouts, groups_->next(step));
  std::vector<Group>& groups = rollouts.groups;
  telemetry.rolled_out(std::move(rollouts.figures));
  BASCULE_ASSIGN(RewardMeans rewards, score(groups));
  telemetry.scored(groups, std::move(rewards));
  BASCULE_ASSIGN(const std::int64_t replaced,
                 groups_->replace_flat(step, groups, [this](auto& more) { return score(more).status(); }));
  telemetry.replaced(replaced);

  BASCULE_ASSIGN(const UpdateStatistics update, learn_from(step, groups));
  last_step_ = step;  // whatever fails from here on, the weights are this step's
  telemetry.updated(update);
  if (update.updates > 0) BASCULE_TRY(say_memory());

  if (sends_after(step)) {
    BASCULE_ASSIGN(SendReport report,
                   send(update.updates > 0 ? PolicySender::Weights::kChanged : PolicySender::Weights::kMayBeTheSame));
    telemetry.sent(std::move(report));
  }
  return telemetry.metrics(groups_->versions().newest());
}

// Once, behind the first update, where it is known what was planned and what came of it.
absl::Status Trainer::say_memory() {
  if (said_memory_ || !options_.device.is_cuda()) return absl::OkStatus();
  said_memory_ = true;
  BASCULE_ASSIGN(const MemoryPlan plan, plan_of(options_));
  log_(measured_beside(plan, options_.device));
  return absl::OkStatus();
}

// Rewards and advantages of completions that the engines have just made.
absl::StatusOr<RewardMeans> Trainer::score(std::vector<Group>& groups) {
  BASCULE_ASSIGN(RewardMeans rewards, score_groups(rewards_, groups));
  const bool silent =
      std::all_of(rewards.begin(), rewards.end(), [](const auto& mean) { return std::isnan(mean.second); });
  if (silent && !std::exchange(said_no_reward_, true))
    log_(cat("no reward has anything to say of step ", last_step_ + 1,
             "'s completions: all count 0, and nothing is learnt from them"));
  if (options_.overlong.buffer > 0) rewards.emplace_back("overlong", penalize_overlong(groups, options_.overlong));
  compute_advantages(groups, options_.scale_rewards);
  return rewards;
}

absl::StatusOr<UpdateStatistics> Trainer::learn_from(std::int64_t step, const std::vector<Group>& groups) {
  if (options_.colocate) BASCULE_TRY(pool_->sleep());
  absl::StatusOr<UpdateStatistics> update =
      learner_.update_policy(step, groups, [this] { return sender_.before_write(); });
  if (!update.ok()) sender_.give_up();
  return update;
}

absl::StatusOr<SendReport> Trainer::send(PolicySender::Weights weights) {
  BASCULE_ASSIGN(SendReport report, sender_.publish(weights));
  if (options_.colocate) {
    BASCULE_TRY(learner_.release_memory());
    BASCULE_TRY(pool_->wake_up());
  }
  if (groups_) groups_->published(report);
  return report;
}

// Nothing is written before the first evaluation is done: a run that never got there leaves nothing, and a resumed one
// what it found.
absl::Status Trainer::begin() {
  BASCULE_TRY(meet_engines());
  if (stopped_()) return absl::OkStatus();
  BASCULE_ASSIGN(SendReport first, send(PolicySender::Weights::kChanged));
  BASCULE_TRY(pool_->wait_until_serving(first.epoch, options_.engine_timeout));
  if (stopped_()) return absl::OkStatus();
  if (last_step_ > 0) {  // the first line was written by the run that is resumed
    BASCULE_TRY(start_log());
    run_log_.serving(last_step_, options_.steps, first);
  } else {
    run_log_.serving(0, options_.steps, first);
    StepMetrics metrics{.step = 0, .version = first.version, .send = first};
    metrics.seconds.send = first.seconds.total();
    BASCULE_ASSIGN(const nlohmann::json completions, evaluate_into(metrics));
    BASCULE_TRY(start_log());
    BASCULE_TRY(run_log_.add_completions(0, completions));
    BASCULE_TRY(run_log_.add(metrics));
  }
  // Behind the evaluation: the first step's figures are its own.
  groups_.emplace(
      GroupSource::Parts{options_, task_, prompts_, *pool_}, last_step_ + 1,
      [this](RunLog::Time time) { return run_log_.seconds(time); }, log_);
  groups_->published(first);
  return absl::OkStatus();
}

// Blocks until they have joined and the problems fit them, or until stopped.
absl::Status Trainer::meet_engines() {
  if (options_.start_engines) {
    BASCULE_ASSIGN(options_.engines, options_.start_engines());
  }
  log_(cat("waiting for ", options_.engines.size(), " engines at ", options_.sync));
  BASCULE_TRY(wait_for_engines(sender_.sender(), options_, stopped_));
  if (stopped_()) return absl::OkStatus();
  const char* key = std::getenv("BASCULE_API_KEY");
  pool_ = std::make_unique<EnginePool>(EnginePoolOptions{.urls = options_.engines,
                                                         .url_of = options_.engine_url,
                                                         .api_key = key == nullptr ? "" : key,
                                                         .request_timeout = options_.request_timeout,
                                                         .log = log_,
                                                         .stopped = stopped_});
  BASCULE_TRY(fit_engines(*pool_, options_, prompts_, task_, log_));
  // Of the problems that are left.
  BASCULE_TRY(resolve_steps(options_, task_));
  BASCULE_TRY(resolve_schedule(options_));
  learner_.follow(options_.optimizer);
  return resolve_kept_task(options_, task_, log_);
}

absl::Status Trainer::start_log() {
  nlohmann::json run{{"about", options_.about}, {"engines", options_.engines}, {"sync", options_.sync}};
  for (const auto& [name, value] : flags_given()) run["flags"][name] = value;
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : learner_.policy().weights()) parameters += tensor.numel();
  run["parameters"] = parameters;
  return run_log_.start(last_step_, options_.steps, run);
}

absl::Status Trainer::end() {
  groups_.reset();
  if (options_.colocate && pool_)  // a step that failed left them asleep, and may hold the memory that they need
    for (const absl::Status& status : {learner_.release_memory(), pool_->wake_up()})
      if (!status.ok()) log_(message_of(status));
  absl::Status saved;
  if (last_step_ > saved_step_ && learner_.is_whole()) saved = save(last_step_);
  if ((last_step_ < options_.steps || !saved.ok()) && (stopped_() || last_step_ > 0))
    log_(cat(stopped_() ? "stopped" : "ended", " after step ", last_step_,
             saved_.empty() ? "; nothing was saved" : cat("; continue with --resume=", saved_.string())));
  saved.Update(run_log_.finish());
  return saved;
}

// What was answered, for people to read.
absl::StatusOr<nlohmann::json> Trainer::evaluate_into(StepMetrics& metrics) {
  const std::size_t count = std::min(options_.eval_problems, task_.held_out.size());
  BASCULE_ASSIGN(const Evaluation evaluation,
                 evaluate(*pool_, prompts_, std::span(task_.held_out).first(count), rewards_,
                          {.samples = options_.eval_samples,
                           .max_tokens = options_.max_tokens,
                           .seed = mix(options_.seed + static_cast<std::uint64_t>(metrics.step))}));
  metrics.eval_reward = evaluation.reward;
  metrics.eval_greedy = evaluation.greedy;
  metrics.eval_rewards = evaluation.rewards;
  const nlohmann::json shown = shown_completions(evaluation, options_.show);
  for (const nlohmann::json& problem : shown)
    log_(cat("    ", quoted(problem["prompt"]), " answer ", quoted(problem["answer"]), "  sampled ",
             quoted(problem["sampled"]), "  greedy ", quoted(problem["greedy"])));
  return shown;
}

absl::Status Trainer::save(std::int64_t step) {
  const std::filesystem::path folder = options_.out / cat("step_", step);
  BASCULE_TRY(
      learner_.save(folder, options_.model, {.step = step, .seed = options_.seed, .run_config = options_.run_config}));
  saved_step_ = step;
  saved_ = folder;
  return absl::OkStatus();
}

}  // namespace bascule::ref
