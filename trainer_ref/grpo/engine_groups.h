// Groups of this program's own problems: requested from the engines ahead of time, filtered by their age, and joined
// with their problems. Groups of further problems can replace flat groups.
//
// Threads: the trainer's. The stream's thread also plans requests, and reads only immutable state.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/group_source.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_filter.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_stream.h>
#include <bascule/trainer_ref/grpo/rollout/stopwatch.h>

namespace bascule::ref {

class EngineGroups final : public GroupSource {
 public:
  struct Parts {  // all must outlive the source
    const TrainFlags& flags;
    const Task& task;
    const PromptWriter& prompts;
    EnginePool& pool;
  };
  // Serves the steps from `first_step` to `last_step`. Requests nothing before the first published(). `seconds`
  // converts a time to seconds since the run began. `log` gets a line for engines that do not answer, or that answer
  // with versions of another trainer.
  EngineGroups(const Parts& parts, std::int64_t first_step, std::int64_t last_step,
               std::function<double(Stopwatch::Time)> seconds, std::function<void(std::string_view)> log);

  void published(const SendReport& report) override;
  // Without completions that were lost or are too stale. Blocks as EnginePool::generate() does.
  absl::StatusOr<Rollouts> next(std::int64_t step) override;
  // Groups of further problems (--dynamic-sampling). If the engines do not answer, the step continues with what it has.
  absl::StatusOr<std::int64_t> replace_flat(std::int64_t step, std::vector<CompletionGroup>& groups,
                                            const Score& score) override;

 private:
  absl::StatusOr<FilterResult> filter_enough(std::int64_t step, const std::vector<RolloutRequest>& requests,
                                             std::vector<Generation>& generations, RolloutFigures& figures);
  RolloutFigures figures_of(const std::vector<Generation>& generations);
  std::vector<std::size_t> prompts_of(std::int64_t step) const;
  std::vector<RolloutRequest> requests_for(const std::vector<std::size_t>& prompts, std::int64_t step,
                                           std::size_t first_place) const;
  // Returns the groups that have completions.
  std::vector<CompletionGroup> answered(std::vector<RolloutRequest> requests,
                                        std::vector<Generation> generations) const;

  const Parts parts_;
  const std::function<double(Stopwatch::Time)> seconds_;
  const std::function<void(std::string_view)> log_;
  std::vector<EngineUse> use_before_;  // at the end of the last step
  RolloutFilter filter_;
  RolloutStream stream_;  // destroyed first: its thread plans requests
};

}  // namespace bascule::ref
