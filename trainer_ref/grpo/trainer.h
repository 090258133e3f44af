// The trainer: GRPO over engines that it sends its weights to.
//
// Threads: everything on the caller's, but for the pool's and the stream's own. All waits are bounded: for engines by
// engine_timeout and request_timeout, for a send by the endpoint's timeout.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/engine_pool.h>
#include <bascule/trainer_ref/grpo/evaluation.h>
#include <bascule/trainer_ref/grpo/learner.h>
#include <bascule/trainer_ref/grpo/metrics.h>
#include <bascule/trainer_ref/grpo/metrics_page.h>
#include <bascule/trainer_ref/grpo/options.h>
#include <bascule/trainer_ref/grpo/progress.h>
#include <bascule/trainer_ref/grpo/prompt.h>
#include <bascule/trainer_ref/grpo/publish.h>
#include <bascule/trainer_ref/grpo/rollout_stream.h>
#include <bascule/trainer_ref/grpo/staleness_filter.h>
#include <bascule/trainer_ref/grpo/task.h>
#include <bascule/trainer_ref/grpo/telemetry.h>

namespace bascule::ref {

class Trainer {
 public:
  // Reads model, task and, to resume, the run's state; takes the endpoint; waits for no engine yet. `stopped` is asked
  // between steps and while engines are waited for; `log` gets a line a step and what goes wrong on the way.
  static absl::StatusOr<std::unique_ptr<Trainer>> create(TrainOptions options, std::function<bool()> stopped,
                                                         std::function<void(std::string_view)> log);

  // Trains until the last step, or until stopped; writes a checkpoint and the report in either case, and nothing where
  // it ended before the first evaluation. An error of a step
  // ends the run too, after a checkpoint of the last step that trained whole, unless the weights have changed since.
  absl::Status run();

 private:
  Trainer(TrainOptions options, std::function<bool()> stopped, std::function<void(std::string_view)> log, Task task,
          PromptWriter prompts, Learner learner, PolicySender sender);
  absl::Status resume();
  absl::Status start_log();

  absl::Status begin();
  absl::Status train();
  absl::Status end();

  absl::StatusOr<StepMetrics> step(std::int64_t step);
  absl::StatusOr<std::vector<Group>> roll_out(std::int64_t step, StepTelemetry& telemetry);
  absl::StatusOr<RewardMeans> score(std::vector<Group>& groups);
  absl::StatusOr<std::int64_t> replace_flat(std::int64_t step, std::vector<Group>& groups);
  absl::StatusOr<UpdateStatistics> learn_from(const std::vector<Group>& groups);
  absl::StatusOr<SendReport> send();
  bool sends_after(std::int64_t step) const { return step == options_.steps || step % options_.sync_every == 0; }
  RolloutFigures figures_of(const std::vector<Generation>& generations);
  absl::Status tell(StepMetrics& metrics);
  absl::StatusOr<nlohmann::json> evaluate_into(StepMetrics& metrics);
  absl::Status count_bad_steps(const StepMetrics& metrics);
  absl::Status save(std::int64_t step);
  absl::Status say_memory();

  std::vector<std::size_t> prompts_of(std::int64_t step) const;
  std::vector<const Problem*> problems_at(const std::vector<std::size_t>& prompts) const;
  std::vector<RolloutRequest> requests_for(const std::vector<std::size_t>& prompts, std::int64_t step,
                                           std::size_t first_place) const;
  double seconds_since_start(Stopwatch::Time time) const;

  TrainOptions options_;
  std::function<bool()> stopped_;
  std::function<void(std::string_view)> log_;
  Task task_;
  PromptWriter prompts_;
  Learner learner_;
  std::vector<WeightedReward> rewards_;
  PolicySender sender_;
  StalenessFilter filter_;
  std::unique_ptr<EnginePool> pool_;
  std::unique_ptr<RolloutStream> stream_;

  std::vector<EngineUse> use_before_;  // as the last step saw it
  Pace pace_;
  std::unique_ptr<MetricsPage> page_;  // null: nobody watches

  Stopwatch::Time began_ = std::chrono::steady_clock::now();
  double elapsed_before_ = 0;   // of the run that this one resumes
  std::int64_t last_step_ = 0;  // trained
  std::int64_t saved_step_ = 0;
  std::filesystem::path saved_;  // its folder, of this run or the one that it resumes; empty: none yet
  std::int64_t bad_steps_ = 0;   // the last ones, of which none changed the weights
  bool log_started_ = false;     // `out` has this run's files
  bool said_no_reward_ = false, said_first_step_ = false, said_memory_ = false;
};

}  // namespace bascule::ref
