#include <bascule/trainer_ref/grpo/trainer.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <bascule/trainer_ref/grpo/advantage.h>
#include <bascule/trainer_ref/grpo/dry_run.h>
#include <bascule/trainer_ref/grpo/engine_start.h>
#include <bascule/trainer_ref/grpo/json_lines.h>
#include <bascule/trainer_ref/grpo/overlong.h>
#include <bascule/trainer_ref/grpo/random.h>
#include <bascule/trainer_ref/grpo/report.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
absl::Status Trainer::run() {
  absl::Status status = begin();
  if (status.ok()) status = train();
  if (absl::IsCancelled(status) && stopped_()) status = absl::OkStatus();  // a wait ended as it was told to
  const absl::Status ended = end();
  return status.ok() ? ended : status;
}

absl::Status Trainer::train() {
  while (last_step_ < options_.steps && !stopped_()) {
    const std::int64_t now = last_step_ + 1;
    BASCULE_ASSIGN(StepMetrics metrics, step(now));
    const bool last = now == options_.steps;
    if (last || (options_.eval_every > 0 && now % options_.eval_every == 0)) {
      // The step was trained and counts, whatever becomes of its evaluation.
      if (const absl::StatusOr<nlohmann::json> completions = evaluate_into(metrics); completions.ok())
        BASCULE_TRY(append_json_line(options_.out / "completions.jsonl", *completions));
      else
        log_(cat("step ", now, " was not evaluated: ", message_of(completions.status())));
    }
    BASCULE_TRY(tell(metrics));
    BASCULE_TRY(count_bad_steps(metrics));
    if (options_.save_every > 0 && now % options_.save_every == 0) BASCULE_TRY(save(now));
  }
  return absl::OkStatus();
}

// A step's line: in the run's folder, in the log, and for those that watch.
absl::Status Trainer::tell(StepMetrics& metrics) {
  metrics.elapsed_seconds = seconds_since_start(std::chrono::steady_clock::now());
  if (metrics.step > 0) pace_.step_ended(metrics.elapsed_seconds);
  BASCULE_TRY(append_json_line(options_.out / "metrics.jsonl", to_json(metrics)));
  const double seconds_left = pace_.seconds_left(options_.steps - metrics.step);
  if (page_) page_->show(metrics, options_.steps, seconds_left);
  log_(progress_line(metrics, options_.steps, seconds_left));
  if (metrics.step == 0 || std::exchange(said_first_step_, true)) return absl::OkStatus();
  log_(first_step_line(metrics, options_.steps, seconds_left));
  if (constexpr double kLong = 600; options_.save_every == 0 && seconds_left > kLong)
    log_(
        "there is no checkpoint before the end: give --save-every, so that another run can go on if this one does not "
        "end");
  return absl::OkStatus();
}

// Weights that give no finite gradient rarely find back by themselves.
absl::Status Trainer::count_bad_steps(const StepMetrics& metrics) {
  bad_steps_ = metrics.update.updates == 0 ? bad_steps_ + 1 : 0;
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
  BASCULE_ASSIGN(std::vector<Group> groups, roll_out(step, telemetry));
  BASCULE_ASSIGN(RewardMeans rewards, score(groups));
  telemetry.scored(groups, std::move(rewards));
  BASCULE_ASSIGN(const std::int64_t replaced, replace_flat(step, groups));
  telemetry.replaced(replaced);

  BASCULE_ASSIGN(const UpdateStatistics update, learn_from(groups));
  last_step_ = step;  // whatever fails from here on, the weights are this step's
  telemetry.updated(update);
  BASCULE_TRY(say_memory());

  if (sends_after(step)) {
    BASCULE_ASSIGN(SendReport report, send());
    telemetry.sent(std::move(report));
  }
  return telemetry.metrics(filter_.versions().newest());
}

// Once, behind the first update, where it is known what was planned and what came of it.
absl::Status Trainer::say_memory() {
  if (said_memory_ || !options_.device.is_cuda()) return absl::OkStatus();
  said_memory_ = true;
  BASCULE_ASSIGN(const MemoryPlan plan, plan_of(options_, task_, prompts_));
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

absl::StatusOr<UpdateStatistics> Trainer::learn_from(const std::vector<Group>& groups) {
  if (options_.colocate) BASCULE_TRY(pool_->sleep());
  absl::StatusOr<UpdateStatistics> update = learner_.update_policy(groups, [this] { return sender_.before_write(); });
  if (!update.ok()) sender_.give_up();
  return update;
}

absl::StatusOr<SendReport> Trainer::send() {
  BASCULE_ASSIGN(SendReport report, sender_.publish());
  filter_.published(report.epoch, report.version);
  if (options_.colocate) {
    BASCULE_TRY(learner_.release_memory());
    BASCULE_TRY(pool_->wake_up());
  }
  stream_->published();
  return report;
}

// Nothing is written before the first evaluation is done: a run that never got there leaves nothing, and a resumed one
// what it found.
absl::Status Trainer::begin() {
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
  BASCULE_TRY(settle_steps(options_, task_));  // of the problems that are left
  stream_ =
      std::make_unique<RolloutStream>(*pool_,
                                      Schedule{.first_step = last_step_ + 1,
                                               .last_step = options_.steps,
                                               .sync_every = options_.sync_every,
                                               .max_staleness = options_.max_staleness},
                                      [this](std::int64_t step) { return requests_for(prompts_of(step), step, 0); });
  StepMetrics metrics{.step = last_step_};
  BASCULE_ASSIGN(metrics.send, send());
  BASCULE_TRY(pool_->wait_until_serving(filter_.versions().epoch(), options_.engine_timeout));
  if (stopped_()) return absl::OkStatus();
  if (last_step_ > 0) {  // the first line was written by the run that is resumed
    BASCULE_TRY(start_log());
    pace_.begin(seconds_since_start(std::chrono::steady_clock::now()));
    return absl::OkStatus();
  }

  metrics.version = filter_.versions().newest();
  metrics.seconds.send = metrics.send->seconds.total();
  BASCULE_ASSIGN(const nlohmann::json completions, evaluate_into(metrics));
  BASCULE_TRY(start_log());
  BASCULE_TRY(append_json_line(options_.out / "completions.jsonl", completions));
  pace_.begin(seconds_since_start(std::chrono::steady_clock::now()));
  return tell(metrics);
}

absl::Status Trainer::end() {
  stream_.reset();
  if (options_.colocate && pool_)  // a step that failed left them asleep, and may hold the memory that they need
    for (const absl::Status& status : {learner_.release_memory(), pool_->wake_up()})
      if (!status.ok()) log_(message_of(status));
  if (last_step_ > saved_step_ && learner_.is_whole()) BASCULE_TRY(save(last_step_));
  if (last_step_ < options_.steps && (stopped_() || last_step_ > 0))
    log_(cat(stopped_() ? "stopped" : "ended", " after step ", last_step_,
             saved_.empty() ? "; nothing was saved" : cat("; continue with --resume=", saved_.string())));
  return log_started_ ? write_report(options_.out) : absl::OkStatus();
}

// The line of completions.jsonl.
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
    log_(cat("    ", problem["prompt"].dump(), " answer ", problem["answer"].dump(), "  sampled ",
             problem["sampled"].dump(), "  greedy ", problem["greedy"].dump()));
  return nlohmann::json{{"step", metrics.step}, {"problems", shown}};
}

absl::Status Trainer::save(std::int64_t step) {
  const std::filesystem::path folder = options_.out / cat("step_", step);
  BASCULE_TRY(learner_.save(folder, options_.model, {.step = step, .seed = options_.seed, .origin = options_.origin}));
  saved_step_ = step;
  saved_ = folder;
  return absl::OkStatus();
}

double Trainer::seconds_since_start(Stopwatch::Time time) const {
  return elapsed_before_ + std::chrono::duration<double>(time - began_).count();
}

}  // namespace bascule::ref
