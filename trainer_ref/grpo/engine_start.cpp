#include <bascule/trainer_ref/grpo/engine_start.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/learn/batch.h>
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Tokens from all over the vocabulary. Two models that answer a problem alike go on from these in different ways.
std::vector<std::int64_t> unusual_prompt(std::int64_t vocab_size, std::int64_t count) {
  constexpr std::int64_t kStride = 7919;  // a prime
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 1; i <= count; ++i) tokens.push_back(i * kStride % vocab_size);
  return tokens;
}

// How far the engine's log-probabilities are from the policy's, on average.
absl::StatusOr<double> difference_from(const Policy& policy, const RolloutRequest& request,
                                       const std::vector<Rollout>& rollouts) {
  std::vector<TrainingRow> rows;
  for (const Rollout& rollout : rollouts)
    if (!rollout.token_ids.empty()) rows.push_back({.prompt = &request.prompt, .rollout = &rollout});
  if (rows.empty()) return unavailable("it sampled no token");
  try {
    const at::NoGradGuard no_gradients;
    const Batch batch = make_batch(rows, policy.device());
    return (policy.log_probs(batch, request.temperature) - batch.behaviour_log_probs).abs().mean().item<double>();
  } catch (const c10::Error& error) {
    return device_failed(policy.device(), error);
  }
}

}  // namespace

absl::Status wait_for_engines(Sender& sender, const std::vector<std::string>& urls, const std::string& flag,
                              absl::Duration timeout, const std::function<bool()>& stopped) {
  constexpr absl::Duration kAtATime = absl::Milliseconds(200);  // the most delay in noticing a signal
  const int count = static_cast<int>(urls.size());
  const Deadline deadline(timeout);
  while (!stopped()) {
    absl::Status joined = sender.wait_for_workers(count, std::min(deadline.left(), kAtATime)).status();
    if (absl::IsDeadlineExceeded(joined) && deadline.passed())
      return deadline_exceeded(message_of(joined), "; ", health_of_engines(urls), "; start them with ", flag);
    if (!absl::IsDeadlineExceeded(joined)) return joined;
  }
  return absl::OkStatus();
}

absl::Status fit_engines(EnginePool& pool, const TrainFlags& flags, const PromptWriter& prompts, Task& task,
                         const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const EngineLimits limits, pool.limits());
  for (const auto& [flag, count] :
       {std::pair("group-size", flags.rollouts.group_size), {"eval-samples", flags.report.eval_samples}})
    if (count > limits.max_completions)
      return invalid_argument("--", flag, "=", count, ": the engines make at most ", limits.max_completions,
                              " completions of a prompt; give at most that",
                              flags.engines.own ? "" : ", or start the engines with a larger --max-batch");
  std::vector<std::string> dropped;
  for (std::vector<Problem>* problems : {&task.train, &task.held_out})
    for (std::string& prompt : drop_long(*problems, prompts, limits.max_model_len - flags.rollouts.max_tokens))
      dropped.push_back(std::move(prompt));
  if (dropped.empty()) return absl::OkStatus();
  const std::string many =
      cat(dropped.size(), " prompts and --max-tokens=", flags.rollouts.max_tokens, " are longer than the ",
          limits.max_model_len, " tokens that the engines accept, as ", dropped.front().substr(0, 200));
  if (!flags.engines.drop_long)
    return invalid_argument(
        many, flags.engines.own ? "; give a smaller --max-tokens" : "; start the engines with a larger --max-model-len",
        ", or leave these out by --drop-long");
  log(cat("--drop-long: ", many));
  if (task.train.empty()) return invalid_argument("--drop-long: no problem to train on is left");
  if (task.held_out.empty()) return invalid_argument("--drop-long: no held-out problem to evaluate on is left");
  return absl::OkStatus();
}

absl::Status check_base_of_engines(EnginePool& pool, const Policy& policy,
                                   const std::function<void(std::string_view)>& log) {
  // bf16 with other kernels gives about 0.01, f32 about 1e-6; a checkpoint a few steps further, 0.1.
  constexpr double kSuspect = 0.03, kMostByRounding = 0.25;
  constexpr std::int64_t kMostCompletions = 8, kMostTokens = 16;
  BASCULE_ASSIGN(const EngineLimits limits, pool.limits());
  const std::int64_t tokens = std::max<std::int64_t>(1, std::min(kMostTokens, limits.max_model_len / 2));
  const RolloutRequest request{.prompt = unusual_prompt(policy.config().vocab_size, tokens),
                               .completions = static_cast<int>(std::min(kMostCompletions, limits.max_completions)),
                               .max_tokens = tokens};
  BASCULE_ASSIGN(const std::vector<Generation> answers, pool.ask_each(request));
  const std::vector<std::string> urls = pool.urls();
  for (const Generation& answer : answers) {
    const std::string engine = cat("engine ", urls[answer.engine]);
    const absl::StatusOr<double> difference = difference_from(policy, request, answer.rollouts);
    BASCULE_TRY(annotate(difference.status(), engine));
    const std::string found = cat("log-probabilities that differ from this run's by ", *difference, " on average");
    if (!(*difference <= kMostByRounding))
      return failed_precondition(engine, ": expected the base model of this run, found ", found, ", of which rounding ",
                                 "explains at most ", kMostByRounding, "; start it with the run's --model");
    log(cat(engine, " has ", found,
            *difference > kSuspect ? ", more than rounding usually explains: does it serve this run's --model?" : ""));
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref
