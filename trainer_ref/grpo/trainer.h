// The trainer: GRPO over engines that serve its weights.
//
//   group_source.h   score()    learner.h      publisher.h   run_log.h
//   roll out ──────▶ reward ──▶ update ──────▶ send ───────▶ a line of metrics          one step
//
// Threads: everything runs on the caller's thread, except in the pool and the stream. All waits are bounded: for
// engines by engine_timeout and request_timeout, for a send by the endpoint's timeout.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/group_source.h>
#include <bascule/trainer_ref/grpo/learn/learner.h>
#include <bascule/trainer_ref/grpo/options/run_plan.h>
#include <bascule/trainer_ref/grpo/publisher.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>
#include <bascule/trainer_ref/grpo/run/run_log.h>

namespace bascule::ref {

struct TrainerHooks {
  std::function<bool()> stopped;              // called between steps and while the trainer waits for engines
  std::function<bool()> signalled;            // whether a signal, and not a lost engine, stopped it
  std::function<void(std::string_view)> log;  // gets a line per step, and problems
  // Only for spawned engines. start_engines starts them, blocks until they listen, and returns their URLs; engine_url
  // returns one engine's current URL.
  std::function<absl::StatusOr<std::vector<std::string>>()> start_engines = nullptr;
  std::function<std::string(std::size_t engine)> engine_url = nullptr;
  // Only for --sync=none: RestartOptions::restart.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::filesystem::path& folder)> restart_engines =
      nullptr;
};

class Trainer {
 public:
  // Reads the problems and the model, and listens at the endpoint `sync`, if weights are sent. Does not wait for
  // engines.
  static absl::StatusOr<std::unique_ptr<Trainer>> create(const TrainFlags& flags, StartPoint start, std::string sync,
                                                         TrainerHooks hooks);

  // Trains until the last step, or until stopped, and writes a checkpoint and the report; a run that ends before the
  // first evaluation writes nothing. If a step fails, run() also writes a checkpoint of the last step that was trained
  // completely, unless the weights have changed since, and returns the error.
  absl::Status run();

 private:
  Trainer(const TrainFlags& flags, TrainerHooks hooks, PreparedRun run, Learner learner,
          std::vector<WeightedReward> rewards, std::unique_ptr<Publisher> publisher, RunLog run_log);

  absl::Status begin();
  absl::Status meet_engines();
  absl::StatusOr<std::unique_ptr<GroupSource>> open_groups();
  absl::Status start_log();
  absl::Status train();
  absl::Status end();

  absl::StatusOr<StepMetrics> step(std::int64_t step);
  absl::StatusOr<RewardMeans> score(std::vector<CompletionGroup>& groups);
  absl::StatusOr<UpdateStatistics> learn_from(std::int64_t step, const std::vector<CompletionGroup>& groups);
  absl::StatusOr<SendReport> send(Publisher::Weights weights);
  bool sends_adapter() const { return flags_.lora.on && flags_.lora.sync == LoraSync::kAdapters; }
  bool sends_after(std::int64_t step) const { return step == fitted_->steps || step % flags_.engines.sync_every == 0; }
  absl::StatusOr<nlohmann::json> evaluate_into(StepMetrics& metrics);
  absl::Status count_bad_steps(const StepMetrics& metrics);
  absl::Status save(std::int64_t step);
  absl::Status log_memory();

  const TrainFlags flags_;
  const TrainerHooks hooks_;
  Task task_;
  PromptWriter prompts_;
  const RunPlan plan_;
  std::optional<const FittedPlan> fitted_;  // once the engines are met
  Learner learner_;
  std::vector<WeightedReward> rewards_;
  std::unique_ptr<Publisher> publisher_;
  std::vector<std::string> engine_urls_;
  RunLog run_log_;
  std::unique_ptr<EnginePool> pool_;
  std::unique_ptr<GroupSource> groups_;

  std::int64_t last_step_ = 0;  // trained
  std::int64_t saved_step_ = 0;
  std::filesystem::path saved_;  // that step's folder, in this run or the resumed one; empty: none yet
  std::int64_t bad_steps_ = 0;   // the latest consecutive steps that left the weights unchanged
  bool has_unsent_ = false;      // the weights changed since the latest version
  bool no_reward_logged_ = false, memory_logged_ = false;
};

}  // namespace bascule::ref
