#include <bascule/trainer_ref/grpo/run/telemetry.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <bascule/trainer_ref/grpo/reward/advantage.h>

namespace bascule::ref {

StepTelemetry::StepTelemetry(std::int64_t step, Stopwatch watch) : watch_(std::move(watch)), metrics_{.step = step} {}

void StepTelemetry::rolled_out(RolloutFigures rollouts) {
  watch_.end("rollout");
  metrics_.rollouts = std::move(rollouts);
}

void StepTelemetry::scored(std::span<const CompletionGroup> groups, RewardMeans rewards) {
  watch_.end("score");
  metrics_.rewards = std::move(rewards);
  double sum = 0, squares = 0, scored = 0, tokens = 0, cut = 0, count = 0;
  metrics_.groups = static_cast<std::int64_t>(groups.size());
  metrics_.flat_groups = std::count_if(groups.begin(), groups.end(), is_flat);
  for (const CompletionGroup& group : groups)
    for (const Rollout& rollout : group.rollouts) {
      if (const std::optional<double> score = rollout.score()) {
        sum += *score;
        squares += *score * *score;
        ++scored;
      }
      tokens += static_cast<double>(rollout.learned_tokens());
      cut += rollout.finish_reason == "length" ? 1 : 0;
      ++count;
    }
  if (scored > 0) {
    metrics_.reward_mean = sum / scored;
    metrics_.reward_std = std::sqrt(std::max(0.0, squares / scored - metrics_.reward_mean * metrics_.reward_mean));
  }
  metrics_.unscored = static_cast<std::int64_t>(count - scored);
  metrics_.completion_tokens_mean = tokens / count;
  metrics_.cut = cut / count;
}

void StepTelemetry::replaced(std::int64_t groups) {
  watch_.end("rollout");
  metrics_.replaced_groups = groups;
}

void StepTelemetry::updated(const UpdateStatistics& update) {
  watch_.end("train");
  metrics_.update = update;
}

void StepTelemetry::sent(SendReport report) {
  watch_.end("send");
  metrics_.send = std::move(report);
}

StepMetrics StepTelemetry::metrics(std::uint64_t version) const {
  StepMetrics line = metrics_;
  line.version = version;
  line.seconds = {.rollout = watch_.seconds("rollout"),
                  .score = watch_.seconds("score"),
                  .train = watch_.seconds("train"),
                  .send = line.send ? watch_.seconds("send") : 0};
  return line;
}

}  // namespace bascule::ref
