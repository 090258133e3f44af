#include <bascule/trainer_ref/grpo/engine_start.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

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

}  // namespace bascule::ref
