#include <bascule/trainer_ref/grpo/telemetry.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bascule::ref {

StepTelemetry::StepTelemetry(std::int64_t step, Stopwatch watch) : watch_(std::move(watch)), metrics_{.step = step} {}

void StepTelemetry::rolled_out(std::int64_t dropped, double staleness_mean, std::vector<EngineSpan> engines) {
  watch_.end("rollout");
  metrics_.dropped = dropped;
  metrics_.staleness_mean = staleness_mean;
  metrics_.engines = std::move(engines);
}

void StepTelemetry::scored(std::span<const Group> groups, RewardMeans rewards) {
  watch_.end("score");
  metrics_.rewards = std::move(rewards);
  double sum = 0, squares = 0, tokens = 0, count = 0;
  for (const Group& group : groups)
    for (const Rollout& rollout : group.rollouts) {
      sum += rollout.reward;
      squares += rollout.reward * rollout.reward;
      tokens += static_cast<double>(rollout.token_ids.size());
      ++count;
    }
  metrics_.reward_mean = sum / count;
  metrics_.reward_std = std::sqrt(std::max(0.0, squares / count - metrics_.reward_mean * metrics_.reward_mean));
  metrics_.completion_tokens_mean = tokens / count;
}

void StepTelemetry::updated(const UpdateStatistics& update) {
  watch_.end("train");
  metrics_.loss = update.loss;
  metrics_.kl = update.kl;
  metrics_.clip_fraction = update.clip_fraction;
  metrics_.grad_norm = update.grad_norm;
  metrics_.skipped_updates = update.skipped;
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
