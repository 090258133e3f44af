// The metrics of one step of the trainer, filled in during the step.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <bascule/sender/report.h>
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/reward/reward_list.h>
#include <bascule/trainer_ref/grpo/rollout/stopwatch.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>
#include <bascule/trainer_ref/grpo/run/update_statistics.h>

namespace bascule::ref {

// Each call except metrics() ends a phase of the step: "rollout", "score", "rollout" again for replaced groups,
// "train", "send". They come in this order; a step that sends nothing omits "send".
class StepTelemetry {
 public:
  explicit StepTelemetry(std::int64_t step, Stopwatch watch = Stopwatch());

  void rolled_out(RolloutFigures rollouts);
  void scored(std::span<const CompletionGroup> groups, RewardMeans rewards);  // with at least one completion
  void replaced(std::int64_t groups);                                         // flat groups, replaced by new ones
  void updated(const UpdateStatistics& update);
  void sent(SendReport report);

  // The metrics of a step after which engines serve `version`.
  StepMetrics metrics(std::uint64_t version) const;

 private:
  Stopwatch watch_;
  StepMetrics metrics_;
};

}  // namespace bascule::ref
