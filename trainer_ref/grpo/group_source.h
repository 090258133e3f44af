// The completion groups that steps learn from: requested from the engines ahead of time, filtered by their age, and put
// together with their problems. Groups that teach nothing are replaced by those of further problems.
//
// Threads: the trainer's. The stream's thread also plans requests, and reads only immutable state.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/report.h>
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_filter.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_stream.h>
#include <bascule/trainer_ref/grpo/rollout/stopwatch.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>

namespace bascule::ref {

class GroupSource {
 public:
  struct Parts {  // all outlive it
    const TrainFlags& flags;
    const Task& task;
    const PromptWriter& prompts;
    EnginePool& pool;
  };
  // For the steps from `first_step` to `last_step`. Requests nothing before the first published(). `seconds` is the
  // run's clock; `log` gets a line for engines that answer with foreign versions, or not at all.
  GroupSource(const Parts& parts, std::int64_t first_step, std::int64_t last_step,
              std::function<double(Stopwatch::Time)> seconds, std::function<void(std::string_view)> log);

  // One more version is served.
  void published(const SendReport& report);
  const PublishedVersions& versions() const { return filter_.versions(); }

  struct Rollouts {
    std::vector<CompletionGroup> groups;  // one a problem that has completions, in their order
    RolloutFigures figures;
  };
  // Of `step`, without what was lost or is too stale. Blocks as EnginePool::generate does. UNAVAILABLE: too few are
  // left.
  absl::StatusOr<Rollouts> next(std::int64_t step);

  // With --dynamic-sampling, flat groups of `groups`, which have rewards, give way to those of further problems, which
  // get theirs by `score`; how many did. Where none varies, they all stay. What the engines do not answer is done
  // without: the step has completions already. CANCELLED, and what `score` says.
  using Score = std::function<absl::Status(std::vector<CompletionGroup>& groups)>;
  absl::StatusOr<std::int64_t> replace_flat(std::int64_t step, std::vector<CompletionGroup>& groups,
                                            const Score& score);

 private:
  absl::StatusOr<FilterResult> filter_enough(std::int64_t step, const std::vector<RolloutRequest>& requests,
                                             std::vector<Generation>& generations, RolloutFigures& figures);
  RolloutFigures figures_of(const std::vector<Generation>& generations);
  std::vector<std::size_t> prompts_of(std::int64_t step) const;
  std::vector<RolloutRequest> requests_for(const std::vector<std::size_t>& prompts, std::int64_t step,
                                           std::size_t first_place) const;
  // The groups that have completions.
  std::vector<CompletionGroup> answered(std::vector<RolloutRequest> requests,
                                        std::vector<Generation> generations) const;

  const Parts parts_;
  const std::function<double(Stopwatch::Time)> seconds_;
  const std::function<void(std::string_view)> log_;
  std::vector<EngineUse> use_before_;  // as the last step saw it
  RolloutFilter filter_;
  RolloutStream stream_;  // goes first: it asks for requests
};

}  // namespace bascule::ref
