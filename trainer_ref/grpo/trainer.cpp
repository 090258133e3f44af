#include <bascule/trainer_ref/grpo/trainer.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <bascule/trainer_ref/grpo/atropos_groups.h>
#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/engine_groups.h>
#include <bascule/trainer_ref/grpo/engine_start.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/options/memory_plan_of.h>
#include <bascule/trainer_ref/grpo/own_engine.h>
#include <bascule/trainer_ref/grpo/publish.h>
#include <bascule/trainer_ref/grpo/restarts.h>
#include <bascule/trainer_ref/grpo/reward/advantage.h>
#include <bascule/trainer_ref/grpo/reward/overlong.h>
#include <bascule/trainer_ref/grpo/rollout/evaluation.h>
#include <bascule/trainer_ref/grpo/run/telemetry.h>
#include <bascule/trainer_ref/grpo/starting_policy.h>
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The model from which the divergence is measured. A policy with an adapter brings it along.
absl::StatusOr<Policy> reference_of(const Policy& policy, const TrainFlags& flags, const RunPlan& plan) {
  if (policy.adapter()) return policy.without_adapter();
  absl::StatusOr<Policy> reference =
      Policy::read(plan.config.reference, Policy::Gradients::kNone, flags.compute.device, flags.compute.options);
  BASCULE_TRY(of_flag(reference.status(), "model", plan.config.reference.string(), kModelAdvice));
  return reference;
}

std::string quoted(const nlohmann::json& text) {  // even if it is not UTF-8
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Learner> make_learner(const TrainFlags& flags, const PreparedRun& run, Policy policy,
                                     const std::function<void(std::string_view)>& log) {
  const RunPlan& plan = run.plan;
  Learner learner(std::move(policy), run.fitted.optimizer, flags.learn.update, progress_logger(log));
  if (is_single_copy(plan.sync)) BASCULE_TRY(learner.free_memory());  // the weights have moved into the slot
  if (flags.learn.needs_reference()) {
    BASCULE_ASSIGN(Policy reference, reference_of(learner.policy(), flags, plan));
    learner.measure_from(std::move(reference));
  }
  if (!flags.resume.empty())
    BASCULE_TRY(
        of_flag(learner.restore(flags.resume, plan.start.resumed), "resume", flags.resume.string(), kResumeAdvice));
  return learner;
}

// The key that engines ask for, and that spawned ones inherit.
std::string engines_key() {
  const char* key = std::getenv("BASCULE_API_KEY");
  return key == nullptr ? "" : key;
}

absl::StatusOr<std::unique_ptr<Publisher>> make_publisher(const TrainFlags& flags, const PreparedRun& run,
                                                          const Policy& policy, const TrainerHooks& hooks) {
  const RunPlan& plan = run.plan;
  if (flags.engines.restarts)
    return std::make_unique<EngineRestarts>(
        RestartOptions{.folder = flags.out / "engines",
                       .model = plan.start.model,
                       .dtype = flags.engines.spawn.dtype == "bf16" ? DType::kBF16 : DType::kF32,
                       .restart = hooks.restart_engines},
        policy);
  if (flags.engines.own)
    return OwnEngine::start({.longest = plan.rows.longest_prompt + flags.rollouts.max_tokens,
                             .adapter = flags.lora.on ? flags.lora.name : "",
                             .api_key = engines_key(),
                             .log = hooks.log},
                            policy);
  auto sender = PolicySender::open(
      {.endpoint = plan.sync,
       .threads = flags.engines.threads,
       .compatibility_key = compatibility_key_of(policy.config(), run.prompts.tokenizer().fingerprint()),
       .log = hooks.log},
      policy, flags.lora.sync);
  BASCULE_TRY(annotate(sender.status(), cat("--sync=", plan.sync)));
  return sender;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::create(const TrainFlags& flags, StartPoint start, std::string sync,
                                                         TrainerHooks hooks) {
  const auto& log = hooks.log;
  BASCULE_ASSIGN(PreparedRun run, prepare_grpo(flags, std::move(start), std::move(sync), log));
  const RunPlan& plan = run.plan;
  BASCULE_ASSIGN(Policy policy, starting_policy(flags, plan.start, log, hooks.stopped));
  if (policy.config().eos_token_ids.empty())
    log(cat(kNoEndToken, "; --max-tokens=", flags.rollouts.max_tokens, " will cut every completion"));
  absl::StatusOr<std::vector<WeightedReward>> rewards =
      make_rewards(flags.reward.specs, {.timeout = flags.reward.timeout, .log = log, .stopped = hooks.stopped});
  BASCULE_TRY(of_flag(rewards.status(), "reward", flags.reward.text, kRewardAdvice));
  BASCULE_ASSIGN(std::unique_ptr<Publisher> publisher, make_publisher(flags, run, policy, hooks));
  BASCULE_ASSIGN(Learner learner, make_learner(flags, run, std::move(policy), log));
  std::unique_ptr<MetricsPage> page;
  if (!flags.report.metrics.empty()) {
    BASCULE_ASSIGN(page, MetricsPage::serve(flags.report.metrics));
    log(cat("metrics at ", page->url(), "/metrics"));
  }
  RunLog run_log({.folder = flags.out, .saves = flags.report.save_every > 0, .line = log}, std::move(page));
  return std::unique_ptr<Trainer>(new Trainer(flags, std::move(hooks), std::move(run), std::move(learner),
                                              *std::move(rewards), std::move(publisher), std::move(run_log)));
}

Trainer::Trainer(const TrainFlags& flags, TrainerHooks hooks, PreparedRun run, Learner learner,
                 std::vector<WeightedReward> rewards, std::unique_ptr<Publisher> publisher, RunLog run_log)
    : flags_(flags),
      hooks_(std::move(hooks)),
      task_(std::move(run.task)),
      prompts_(std::move(run.prompts)),
      plan_(std::move(run.plan)),
      learner_(std::move(learner)),
      rewards_(std::move(rewards)),
      publisher_(std::move(publisher)),
      engine_urls_(flags_.engines.urls),
      run_log_(std::move(run_log)),
      last_step_(plan_.start.resumed.step),
      saved_step_(plan_.start.resumed.step),
      saved_(flags_.resume) {}

absl::Status Trainer::run() {
  absl::Status status = begin();
  if (status.ok()) status = train();
  if (absl::IsCancelled(status) && hooks_.stopped()) status = absl::OkStatus();  // a wait ended on request
  const absl::Status ended = end();
  if (status.ok()) return ended;
  if (!ended.ok() && ended != status) hooks_.log(message_of(ended));
  return status;
}

absl::Status Trainer::train() {
  while (!hooks_.stopped() && last_step_ < fitted_->steps) {
    const std::int64_t now = last_step_ + 1;
    BASCULE_ASSIGN(StepMetrics metrics, step(now));
    const bool last = now == fitted_->steps;
    if (last || (flags_.report.eval_every > 0 && now % flags_.report.eval_every == 0)) {
      // The step was trained and counts, even if its evaluation fails.
      if (const absl::StatusOr<nlohmann::json> completions = evaluate_into(metrics); completions.ok())
        BASCULE_TRY(run_log_.add_completions(now, *completions));
      else
        hooks_.log(cat("step ", now, " was not evaluated: ", message_of(completions.status())));
    }
    BASCULE_TRY(run_log_.add(metrics));
    BASCULE_TRY(count_bad_steps(metrics));
    if (flags_.report.save_every > 0 && now % flags_.report.save_every == 0) BASCULE_TRY(save(now));
  }
  return absl::OkStatus();
}

// Weights that give no finite gradient rarely recover.
absl::Status Trainer::count_bad_steps(const StepMetrics& metrics) {
  const bool is_bad = metrics.update.updates == 0 && metrics.update.skipped > 0;
  bad_steps_ = is_bad ? bad_steps_ + 1 : 0;
  if (bad_steps_ < flags_.learn.max_bad_steps) return absl::OkStatus();
  return failed_precondition(
      "steps ", metrics.step - bad_steps_ + 1, " to ", metrics.step,
      ": expected a finite loss and finite gradients, found none; the weights are still from step ",
      metrics.step - bad_steps_,
      "; look at the rewards, continue from an earlier checkpoint with "
      "a smaller --learning-rate, or give a larger --max-bad-steps than ",
      flags_.learn.max_bad_steps);
}

// One step of GRPO.
absl::StatusOr<StepMetrics> Trainer::step(std::int64_t step) {
  StepTelemetry telemetry(step);
  BASCULE_ASSIGN(auto rollouts, groups_->next(step));
  std::vector<CompletionGroup>& groups = rollouts.groups;
  telemetry.rolled_out(std::move(rollouts.figures));
  BASCULE_ASSIGN(RewardMeans rewards, score(groups));
  telemetry.scored(groups, std::move(rewards));
  BASCULE_ASSIGN(const std::int64_t replaced,
                 groups_->replace_flat(step, groups, [this](auto& more) { return score(more).status(); }));
  telemetry.replaced(replaced);

  BASCULE_ASSIGN(const UpdateStatistics update, learn_from(step, groups));
  last_step_ = step;  // even if something fails below, the weights are this step's
  telemetry.updated(update);
  if (update.updates > 0) BASCULE_TRY(log_memory());

  has_unsent_ = has_unsent_ || update.updates > 0;
  if (sends_after(step)) {
    BASCULE_ASSIGN(SendReport report,
                   send(has_unsent_ ? Publisher::Weights::kChanged : Publisher::Weights::kMayBeTheSame));
    has_unsent_ = false;
    telemetry.sent(std::move(report));
  }
  return telemetry.metrics(groups_->newest_version());
}

// Logs the planned and measured memory once, after the first update.
absl::Status Trainer::log_memory() {
  if (memory_logged_ || !flags_.compute.device.is_cuda()) return absl::OkStatus();
  memory_logged_ = true;
  BASCULE_ASSIGN(const MemoryPlan memory, memory_plan_of(flags_, plan_));
  hooks_.log(measured_beside(memory, flags_.compute.device));
  return absl::OkStatus();
}

// Computes the rewards and advantages of new completions.
absl::StatusOr<RewardMeans> Trainer::score(std::vector<CompletionGroup>& groups) {
  RewardMeans rewards;
  if (!groups_->is_scored()) {
    BASCULE_ASSIGN(rewards, score_groups(rewards_, groups));
  }
  const bool is_scored = std::any_of(groups.begin(), groups.end(), [](const CompletionGroup& group) {
    return std::any_of(group.rollouts.begin(), group.rollouts.end(), [](const Rollout& r) { return r.reward; });
  });
  if (!is_scored && !std::exchange(no_reward_logged_, true))
    hooks_.log(cat("no reward applies to any completion of step ", last_step_ + 1, ": nothing is learned from them"));
  if (flags_.reward.overlong.buffer > 0)
    rewards.emplace_back("overlong", penalize_overlong(groups, flags_.reward.overlong));
  compute_advantages(groups, flags_.reward.scale);
  return rewards;
}

absl::StatusOr<UpdateStatistics> Trainer::learn_from(std::int64_t step, const std::vector<CompletionGroup>& groups) {
  if (flags_.engines.colocate) BASCULE_TRY(pool_->sleep());
  absl::StatusOr<UpdateStatistics> update =
      learner_.update_policy(step, groups, [this] { return publisher_->before_write(); });
  if (!update.ok()) publisher_->give_up();
  return update;
}

absl::StatusOr<SendReport> Trainer::send(Publisher::Weights weights) {
  BASCULE_ASSIGN(SendReport report, publisher_->publish(weights));
  if (flags_.engines.colocate) {
    BASCULE_TRY(learner_.free_memory());
    BASCULE_TRY(pool_->wake_up());
  }
  if (groups_) groups_->published(report);
  return report;
}

// Writes nothing before the first evaluation is done: a run that ends earlier leaves nothing, and a resumed one changes
// nothing.
absl::Status Trainer::begin() {
  BASCULE_TRY(meet_engines());
  if (hooks_.stopped()) return absl::OkStatus();
  BASCULE_ASSIGN(SendReport first, send(Publisher::Weights::kChanged));
  if (first.epoch != 0) BASCULE_TRY(pool_->wait_until_serving(first.epoch, flags_.engines.start_timeout));
  if (sends_adapter() && !hooks_.stopped()) BASCULE_TRY(check_base_of_engines(*pool_, learner_.policy(), hooks_.log));
  if (hooks_.stopped()) return absl::OkStatus();
  if (last_step_ > 0) {  // the resumed run wrote the first line
    BASCULE_TRY(start_log());
    run_log_.serving(last_step_, fitted_->steps, first);
  } else {
    run_log_.serving(0, fitted_->steps, first);
    StepMetrics metrics{.step = 0, .version = first.version, .send = first};
    metrics.seconds.send = first.seconds.total();
    BASCULE_ASSIGN(const nlohmann::json completions, evaluate_into(metrics));
    BASCULE_TRY(start_log());
    BASCULE_TRY(run_log_.add_completions(0, completions));
    BASCULE_TRY(run_log_.add(metrics));
  }
  // After the evaluation, so that it does not count for the first step.
  BASCULE_ASSIGN(groups_, open_groups());
  groups_->published(first);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GroupSource>> Trainer::open_groups() {
  if (!flags_.atropos.on())
    return std::make_unique<EngineGroups>(
        EngineGroups::Parts{flags_, task_, prompts_, *pool_}, last_step_ + 1, fitted_->steps,
        [this](RunLog::Time time) { return run_log_.seconds(time); }, hooks_.log);
  const RolloutFlags& rollouts = flags_.rollouts;
  AtroposServer server({.url = flags_.atropos.url,
                        .batch_timeout = flags_.atropos.batch_timeout,
                        .limits = {.vocab_size = learner_.policy().config().vocab_size,
                                   .max_tokens = rollouts.max_tokens,
                                   .temperature = rollouts.temperature},
                        .log = hooks_.log,
                        .stopped = hooks_.stopped});
  const auto batch = static_cast<std::int64_t>(rollouts.prompts_per_step) * rollouts.group_size;
  const std::int64_t save_every = flags_.report.save_every;
  BASCULE_TRY(server.register_trainer({.batch_size = batch,
                                       .max_tokens = rollouts.max_tokens,
                                       .starting_step = last_step_,
                                       .steps = fitted_->steps,
                                       .save_every = save_every > 0 ? save_every : fitted_->steps,
                                       .folder = std::filesystem::absolute(flags_.out).string()}));
  return std::make_unique<AtroposGroups>(std::move(server), flags_.engines.min_batch, hooks_.log);
}

// Blocks until the engines have joined, or until stopped, and checks that the problems fit them.
absl::Status Trainer::meet_engines() {
  if (hooks_.start_engines) {
    BASCULE_ASSIGN(engine_urls_, hooks_.start_engines());
  }
  if (!plan_.sync.empty()) hooks_.log(cat("waiting for ", engine_urls_.size(), " engines at ", plan_.sync));
  const std::string flag =
      sends_adapter() ? cat("--adapter=", flags_.lora.name, "=", plan_.sync) : cat("--sync=", plan_.sync);
  BASCULE_ASSIGN(engine_urls_, publisher_->meet({.urls = std::move(engine_urls_),
                                                 .flag = flag,
                                                 .timeout = flags_.engines.start_timeout,
                                                 .stopped = hooks_.stopped}));
  if (hooks_.stopped()) return absl::OkStatus();
  pool_ = std::make_unique<EnginePool>(EnginePoolOptions{.urls = engine_urls_,
                                                         .url_of = hooks_.engine_url,
                                                         .api_key = engines_key(),
                                                         .model = sends_adapter() ? flags_.lora.name : "",
                                                         .flag = flag,
                                                         .needs_active = flags_.atropos.on(),
                                                         .request_timeout = flags_.engines.request_timeout,
                                                         .log = hooks_.log,
                                                         .stopped = hooks_.stopped});
  BASCULE_TRY(fit_engines(*pool_, flags_, prompts_, task_, hooks_.log));
  BASCULE_ASSIGN(FittedPlan fitted, fit_plan(flags_, plan_, task_, hooks_.log));
  learner_.follow(fitted_.emplace(std::move(fitted)).optimizer);
  return absl::OkStatus();
}

absl::Status Trainer::start_log() {
  nlohmann::json run{
      {"about", flags_.report.about}, {"engines", engine_urls_}, {"sync", plan_.sync.empty() ? "none" : plan_.sync}};
  for (const auto& [name, value] : flags_.given) run["flags"][name] = value;
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : learner_.policy().weights()) parameters += tensor.numel();
  run["parameters"] = parameters;
  if (learner_.policy().adapter()) {
    std::int64_t trained = 0;
    for (const auto& [name, tensor] : learner_.policy().trained()) trained += tensor.numel();
    run["trained_parameters"] = trained;
  }
  return run_log_.start(last_step_, fitted_->steps, run);
}

absl::Status Trainer::end() {
  const bool had_begun = groups_ != nullptr, signalled = hooks_.signalled();
  groups_.reset();
  if (flags_.engines.colocate && pool_)  // a failed step left them asleep, and may hold their memory
    for (const absl::Status& status : {learner_.free_memory(), pool_->wake_up()})
      if (!status.ok()) hooks_.log(message_of(status));
  absl::Status saved;
  if (last_step_ > saved_step_ && learner_.is_whole()) saved = save(last_step_);
  if ((!fitted_ || last_step_ < fitted_->steps || !saved.ok()) && (had_begun || signalled))
    hooks_.log(cat(signalled ? "stopped" : "ended", " after step ", last_step_,
                   saved_.empty() ? "; nothing was saved" : cat("; continue with --resume=", saved_.string())));
  saved.Update(run_log_.finish());
  return saved;
}

// Evaluates into `metrics`, and returns the completions in readable form.
absl::StatusOr<nlohmann::json> Trainer::evaluate_into(StepMetrics& metrics) {
  const std::size_t count = std::min(flags_.report.eval_problems, task_.held_out.size());
  if (count == 0) return nlohmann::json::array();  // environments evaluate
  BASCULE_ASSIGN(const Evaluation evaluation,
                 evaluate(*pool_, prompts_, std::span(task_.held_out).first(count), rewards_,
                          {.samples = flags_.report.eval_samples,
                           .max_tokens = flags_.rollouts.max_tokens,
                           .seed = mix(flags_.rollouts.seed + static_cast<std::uint64_t>(metrics.step))}));
  metrics.eval_reward = evaluation.reward;
  metrics.eval_greedy = evaluation.greedy;
  metrics.eval_rewards = evaluation.rewards;
  const nlohmann::json shown = shown_completions(evaluation, flags_.report.show);
  for (const nlohmann::json& problem : shown)
    hooks_.log(cat("    ", quoted(problem["prompt"]), " answer ", quoted(problem["answer"]), "  sampled ",
                   quoted(problem["sampled"]), "  greedy ", quoted(problem["greedy"])));
  return shown;
}

absl::Status Trainer::save(std::int64_t step) {
  const std::filesystem::path folder = flags_.out / cat(flags_.lora.on ? "adapter_step_" : "step_", step);
  BASCULE_TRY(learner_.save(folder, plan_.start.model,
                            {.step = step, .seed = flags_.rollouts.seed, .run_config = fitted_->config}));
  saved_step_ = step;
  saved_ = folder;
  return absl::OkStatus();
}

}  // namespace bascule::ref
