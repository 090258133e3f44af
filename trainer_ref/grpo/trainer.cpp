#include <bascule/trainer_ref/grpo/trainer.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cmath>
#include <map>

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
  metrics.version = versions_.back();
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
  std::map<std::pair<std::size_t, std::uint64_t>, EngineSpan> spans;
  for (const Generation& generation : generations)
    for (const Rollout& rollout : generation.rollouts)
      for (const std::uint64_t version : rollout.versions) {
        const double begin = seconds_since_start(generation.began), end = seconds_since_start(generation.ended);
        EngineSpan& span = spans
                               .try_emplace({generation.engine, version},
                                            EngineSpan{pool_->urls()[generation.engine], version, begin, end})
                               .first->second;
        span.begin_seconds = std::min(span.begin_seconds, begin);
        span.end_seconds = std::max(span.end_seconds, end);
        ++span.tokens;
      }
  for (auto& [key, span] : spans) result.engines.push_back(std::move(span));

  result.groups = groups_of(problems_of(step), requests_of(step), std::move(generations), tokenizer_);
  double staleness = 0, tokens = 0;
  std::size_t kept = 0;
  for (Group& group : result.groups) {
    std::erase_if(group.rollouts, [&](const Rollout& rollout) {
      return rollout.token_ids.empty() || rollout.finish_reason == "abort" ||
             std::any_of(rollout.versions.begin(), rollout.versions.end(), [&](std::uint64_t version) {
               return behind(version) > static_cast<std::uint64_t>(options_.max_staleness);
             });
    });
    kept += group.rollouts.size();
    for (const Rollout& rollout : group.rollouts)
      for (const std::uint64_t version : rollout.versions) {
        staleness += static_cast<double>(behind(version));
        ++tokens;
      }
  }
  std::erase_if(result.groups, [](const Group& group) { return group.rollouts.empty(); });
  result.dropped =
      static_cast<std::int64_t>(options_.prompts_per_step) * options_.group_size - static_cast<std::int64_t>(kept);
  if (kept == 0)
    return unavailable("step ", step, ": no completion is left: all were lost, or made by versions more than ",
                       "--max-staleness=", options_.max_staleness, " behind");
  result.staleness_mean = staleness / tokens;
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
  versions_.push_back(report->version);
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

// Nothing is written before the first evaluation is done: a run that never got there leaves nothing, and a resumed one
// what it found.
absl::Status Trainer::begin() {
  log_(cat("waiting for ", options_.engines.size(), " engines at ", options_.sync));
  BASCULE_TRY(wait_for_engines());
  if (stopped_()) return absl::OkStatus();
  pool_ = std::make_unique<EnginePool>(
      EnginePoolOptions{.urls = options_.engines, .request_timeout = options_.request_timeout, .log = log_});
  stream_ = std::make_unique<RolloutStream>(*pool_,
                                            Schedule{.first_step = last_step_ + 1,
                                                     .last_step = options_.steps,
                                                     .sync_every = options_.sync_every,
                                                     .max_staleness = options_.max_staleness},
                                            [this](std::int64_t step) { return requests_of(step); });
  StepMetrics metrics{.step = last_step_};
  BASCULE_ASSIGN(metrics.send, send());
  BASCULE_TRY(pool_->wait_until_serving(options_.engine_timeout, stopped_));
  if (stopped_()) return absl::OkStatus();
  if (last_step_ > 0) return start_log();  // the first line was written by the run that is resumed

  metrics.version = versions_.back();
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

// How many versions were published after `version`.
std::uint64_t Trainer::behind(std::uint64_t version) const {
  return static_cast<std::uint64_t>(versions_.end() - std::upper_bound(versions_.begin(), versions_.end(), version));
}

double Trainer::seconds_since_start(Clock::time_point time) const {
  return elapsed_before_ + seconds_between(began_, time);
}

}  // namespace bascule::ref
