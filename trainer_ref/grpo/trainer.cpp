#include <bascule/trainer_ref/grpo/trainer.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <bascule/trainer_ref/grpo/advantage.h>
#include <bascule/trainer_ref/grpo/prompt.h>
#include <bascule/trainer_ref/grpo/random.h>
#include <bascule/trainer_ref/grpo/report.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::vector<TrainingRow> rows_of(const std::vector<Group>& groups) {
  std::vector<TrainingRow> rows;
  for (const Group& group : groups)
    for (const Rollout& rollout : group.rollouts) rows.push_back({&group.prompt, &rollout});
  return rows;
}

// Mean and standard deviation of all rewards, and the mean number of tokens.
void describe(const std::vector<Group>& groups, StepMetrics& metrics) {
  double rewards = 0, squares = 0, tokens = 0, count = 0;
  for (const Group& group : groups)
    for (const Rollout& rollout : group.rollouts) {
      rewards += rollout.reward;
      squares += rollout.reward * rollout.reward;
      tokens += static_cast<double>(rollout.token_ids.size());
      ++count;
    }
  metrics.reward_mean = rewards / count;
  metrics.reward_std = std::sqrt(std::max(0.0, squares / count - metrics.reward_mean * metrics.reward_mean));
  metrics.completion_tokens_mean = tokens / count;
}

}  // namespace

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
    metrics.elapsed_seconds = seconds_since_start(Clock::now());
    BASCULE_TRY(append_json_line(options_.out / "metrics.jsonl", to_json(metrics)));
    log_(progress_line(metrics, options_.steps));
    BASCULE_TRY(count_bad_steps(metrics));
    if (options_.save_every > 0 && now % options_.save_every == 0) BASCULE_TRY(save(now));
  }
  return absl::OkStatus();
}

// Weights that give no finite gradient rarely find back by themselves.
absl::Status Trainer::count_bad_steps(const StepMetrics& metrics) {
  bad_steps_ = metrics.skipped_updates == options_.update.num_iterations ? bad_steps_ + 1 : 0;
  if (bad_steps_ < options_.max_bad_steps) return absl::OkStatus();
  return failed_precondition(
      "steps ", metrics.step - bad_steps_ + 1, " to ", metrics.step,
      ": expected a finite loss and finite gradients, found none; the weights are those of step ",
      metrics.step - bad_steps_,
      "; look at the rewards, continue from an earlier checkpoint with "
      "a smaller --learning-rate, or give a larger --max-bad-steps than ",
      options_.max_bad_steps);
}

// Roll out, score, compare within groups, improve, send: one step of GRPO.
absl::StatusOr<StepMetrics> Trainer::step(std::int64_t step) {
  StepMetrics metrics{.step = step};
  const Clock::time_point start = Clock::now();
  BASCULE_ASSIGN(Rollouts rollouts, roll_out(step));
  if (options_.colocate) BASCULE_TRY(pool_->sleep());
  const Clock::time_point rolled_out = Clock::now();
  BASCULE_ASSIGN(metrics.rewards, score_groups(rewards_, rollouts.groups));
  compare(rollouts.groups);
  const Clock::time_point scored = Clock::now();
  BASCULE_ASSIGN(const UpdateStatistics update, improve(rollouts.groups));
  last_step_ = step;  // whatever fails from here on, the weights are this step's
  const Clock::time_point improved = Clock::now();
  metrics.seconds = {.rollout = seconds_between(start, rolled_out),
                     .score = seconds_between(rolled_out, scored),
                     .train = seconds_between(scored, improved),
                     .send = 0};
  if (step == options_.steps || step % options_.sync_every == 0) {
    BASCULE_ASSIGN(metrics.send, send());
    metrics.seconds.send = seconds_between(improved, Clock::now());
  }
  describe(rollouts.groups, metrics);
  metrics.version = published_.newest();
  metrics.loss = update.loss;
  metrics.kl = update.kl;
  metrics.clip_fraction = update.clip_fraction;
  metrics.grad_norm = update.grad_norm;
  metrics.skipped_updates = update.skipped;
  metrics.staleness_mean = rollouts.staleness_mean;
  metrics.dropped = rollouts.dropped;
  metrics.engines = std::move(rollouts.engines);
  return metrics;
}

absl::StatusOr<Trainer::Rollouts> Trainer::roll_out(std::int64_t step) {
  BASCULE_ASSIGN(std::vector<Generation> generations, stream_->next());
  Rollouts result;
  result.engines =
      engine_spans(generations, pool_->urls(), [this](Clock::time_point time) { return seconds_since_start(time); });
  const Sifted sifted = sift(generations, published_, options_.max_staleness);
  for (const auto& [engine, version] : sifted.by)
    log_(cat("engine ", pool_->urls()[engine], " answers with ", version,
             ", which this run never published; its completions are dropped: start it with the --sync of this run"));
  const std::size_t asked = options_.prompts_per_step * static_cast<std::size_t>(options_.group_size);
  if (static_cast<double>(sifted.kept) < std::max(1.0, options_.min_batch * static_cast<double>(asked)))
    return unavailable("step ", step, ": ", sifted.kept, " of ", asked,
                       " completions are left, fewer than --min-batch=", options_.min_batch, " of them: ", sifted.stale,
                       " are of versions more than --max-staleness=", options_.max_staleness, " behind, ",
                       sifted.foreign, " of another trainer's, and ",
                       asked - std::min(asked, sifted.kept + sifted.stale + sifted.foreign),
                       " were lost; the log says how");
  result.groups = groups_of(problems_of(step), requests_of(step), std::move(generations), tokenizer_);
  std::erase_if(result.groups, [](const Group& group) { return group.rollouts.empty(); });
  result.dropped = static_cast<std::int64_t>(asked) - static_cast<std::int64_t>(sifted.kept);
  result.staleness_mean = sifted.staleness_mean;
  return result;
}

void Trainer::compare(std::vector<Group>& groups) const {
  for (Group& group : groups) {
    std::vector<double> rewards;
    for (const Rollout& rollout : group.rollouts) rewards.push_back(rollout.reward);
    const std::vector<double> values = advantages(rewards, options_.scale_rewards);
    for (std::size_t i = 0; i < values.size(); ++i) group.rollouts[i].advantage = values[i];
  }
}

absl::StatusOr<UpdateStatistics> Trainer::improve(const std::vector<Group>& groups) {
  const std::int64_t before = optimizer_.steps();
  try {
    return update_policy(policy_, reference_ ? &*reference_ : nullptr, optimizer_, rows_of(groups), options_.update);
  } catch (const c10::Error& error) {
    policy_is_whole_ = optimizer_.steps() == before;
    return absl::ResourceExhaustedError(cat("training on ", policy_.device().str(), ": ",
                                            error.what_without_backtrace(),
                                            " (a smaller --micro-batch needs less memory)"));
  }
}

absl::StatusOr<SendReport> Trainer::send() {
  absl::StatusOr<SendReport> report = sender_.send();
  if (!report.ok()) {
    // Nobody flipped, and the next send is another version: trying again repeats nothing.
    log_(cat("a version was not published; trying once more: ", message_of(report.status())));
    report = sender_.send();
  }
  if (!report.ok()) return annotate(report.status(), "the weights could not be sent");
  for (const WorkerReport& worker : report->workers)
    if (!worker.error.ok())
      log_(cat("version ", report->version, ": worker ", worker.worker, " ", to_string(worker.state), ": ",
               message_of(worker.error)));
  for (const std::string& warning : report->warnings) log_(cat("version ", report->version, ": ", warning));
  published_.add(report->epoch, report->version);
  if (options_.colocate) {
    BASCULE_TRY(give_memory_back());
    BASCULE_TRY(pool_->wake_up());
  }
  stream_->published();
  return report;
}

// What training held and nothing needs before the next step: gradients, and what LibTorch keeps to use again.
absl::Status Trainer::give_memory_back() {
  try {
    optimizer_.zero_grad();
    if (policy_.device().is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
  } catch (const c10::Error& error) {  // a device that failed
    return unavailable("releasing memory on ", policy_.device().str(), ": ", error.what_without_backtrace());
  }
  return absl::OkStatus();
}

// All of them have joined, or the run is to stop.
absl::Status Trainer::wait_for_engines() {
  constexpr absl::Duration kAtATime = absl::Milliseconds(200);  // so soon a signal is heard
  const int count = static_cast<int>(options_.engines.size());
  const Deadline deadline(options_.engine_timeout);
  while (!stopped_()) {
    absl::Status joined = sender_.wait_for_workers(count, std::min(deadline.left(), kAtATime)).status();
    if (absl::IsDeadlineExceeded(joined) && deadline.passed())
      return deadline_exceeded(message_of(joined), "; ", what_engines_say(options_.engines));
    if (!absl::IsDeadlineExceeded(joined)) return joined;
  }
  return absl::OkStatus();
}

// What the engines cannot take is found before the first step.
absl::Status Trainer::fit_engines() {
  BASCULE_ASSIGN(const EngineLimits limits, pool_->limits());
  for (const auto& [flag, count] :
       {std::pair("group-size", options_.group_size), {"eval-samples", options_.eval_samples}})
    if (count > limits.max_completions)
      return invalid_argument(
          "--", flag, "=", count, ": the engines make at most ", limits.max_completions,
          " completions of a prompt; give at most that, or start the engines with a larger --max-batch");
  std::vector<std::string> dropped;
  for (std::vector<Problem>* problems : {&task_.train, &task_.held_out})
    for (std::string& prompt : drop_long(*problems, tokenizer_, limits.max_model_len - options_.max_tokens))
      dropped.push_back(std::move(prompt));
  if (dropped.empty()) return absl::OkStatus();
  const std::string many =
      cat(dropped.size(), " prompts and --max-tokens=", options_.max_tokens, " are longer than the ",
          limits.max_model_len, " tokens that the engines take, as ", dropped.front().substr(0, 200));
  if (!options_.drop_long)
    return invalid_argument(many,
                            "; start the engines with a larger --max-model-len, or leave these out by --drop-long");
  log_(cat("--drop-long: ", many));
  if (task_.train.empty()) return invalid_argument("--drop-long: no problem to train on is left");
  return absl::OkStatus();
}

// Nothing is written before the first evaluation is done: a run that never got there leaves nothing, and a resumed one
// what it found.
absl::Status Trainer::begin() {
  log_(cat("waiting for ", options_.engines.size(), " engines at ", options_.sync));
  BASCULE_TRY(wait_for_engines());
  if (stopped_()) return absl::OkStatus();
  const char* key = std::getenv("BASCULE_API_KEY");
  pool_ = std::make_unique<EnginePool>(EnginePoolOptions{.urls = options_.engines,
                                                         .api_key = key == nullptr ? "" : key,
                                                         .request_timeout = options_.request_timeout,
                                                         .log = log_,
                                                         .stopped = stopped_});
  BASCULE_TRY(fit_engines());
  stream_ = std::make_unique<RolloutStream>(*pool_,
                                            Schedule{.first_step = last_step_ + 1,
                                                     .last_step = options_.steps,
                                                     .sync_every = options_.sync_every,
                                                     .max_staleness = options_.max_staleness},
                                            [this](std::int64_t step) { return requests_of(step); });
  StepMetrics metrics{.step = last_step_};
  BASCULE_ASSIGN(metrics.send, send());
  BASCULE_TRY(pool_->wait_until_serving(published_.epoch(), options_.engine_timeout));
  if (stopped_()) return absl::OkStatus();
  if (last_step_ > 0) return start_log();  // the first line was written by the run that is resumed

  metrics.version = published_.newest();
  metrics.seconds.send = metrics.send->seconds.total();
  BASCULE_ASSIGN(const nlohmann::json completions, evaluate_into(metrics));
  BASCULE_TRY(start_log());
  BASCULE_TRY(append_json_line(options_.out / "completions.jsonl", completions));
  metrics.elapsed_seconds = seconds_since_start(Clock::now());
  BASCULE_TRY(append_json_line(options_.out / "metrics.jsonl", to_json(metrics)));
  log_(progress_line(metrics, options_.steps));
  return absl::OkStatus();
}

absl::Status Trainer::end() {
  stream_.reset();
  if (options_.colocate && pool_)  // a step that failed left them asleep, and may hold the memory that they need
    for (const absl::Status& status : {give_memory_back(), pool_->wake_up()})
      if (!status.ok()) log_(message_of(status));
  if (last_step_ > saved_step_ && policy_is_whole_) BASCULE_TRY(save(last_step_));
  if (stopped_())
    log_(cat("stopped after step ", last_step_,
             saved_.empty() ? "; nothing was saved" : cat("; continue with --resume=", saved_.string())));
  return log_started_ ? write_report(options_.out) : absl::OkStatus();
}

// The line of completions.jsonl.
absl::StatusOr<nlohmann::json> Trainer::evaluate_into(StepMetrics& metrics) {
  const std::size_t count = std::min(options_.eval_problems, task_.held_out.size());
  BASCULE_ASSIGN(const Evaluation evaluation,
                 evaluate(*pool_, tokenizer_, std::span(task_.held_out).first(count), rewards_,
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
  try {
    BASCULE_TRY(save_run(
        folder, options_.model, policy_, optimizer_,
        {.step = step, .seed = options_.seed, .optimizer_steps = optimizer_.steps(), .origin = options_.origin}));
  } catch (const c10::Error& error) {  // a device that failed
    return unavailable("the checkpoint of step ", step, ": ", error.what_without_backtrace());
  }
  saved_step_ = step;
  saved_ = folder;
  return absl::OkStatus();
}

std::vector<const Problem*> Trainer::problems_of(std::int64_t step) const {
  std::vector<const Problem*> problems;
  // Steps count from 1, the order of problems from 0.
  for (const std::size_t i : prompts_of_step(task_.train.size(), options_.prompts_per_step, options_.seed, step - 1))
    problems.push_back(&task_.train[i]);
  return problems;
}

// Called on the stream's thread as well: reads what never changes.
std::vector<RolloutRequest> Trainer::requests_of(std::int64_t step) const {
  std::vector<RolloutRequest> requests;
  for (const Problem* problem : problems_of(step)) {
    const std::uint64_t place = static_cast<std::uint64_t>(step) << 32 | requests.size();
    requests.push_back({.prompt = *prompt_tokens(*problem, tokenizer_),  // create() has looked at them all
                        .completions = options_.group_size,
                        .max_tokens = options_.max_tokens,
                        .temperature = options_.update.temperature,
                        .seed = mix(options_.seed ^ mix(place))});
  }
  return requests;
}

double Trainer::seconds_since_start(Clock::time_point time) const {
  return elapsed_before_ + seconds_between(began_, time);
}

}  // namespace bascule::ref
