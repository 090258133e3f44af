// What a run of bascule-train is told, and the checks that it makes sense.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/data/data_file.h>
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/grpo/learn/run_state.h>
#include <bascule/trainer_ref/grpo/learn/update.h>
#include <bascule/trainer_ref/grpo/process/spawn_options.h>
#include <bascule/trainer_ref/grpo/reward/overlong.h>
#include <bascule/trainer_ref/grpo/reward/reward_list.h>
#include <bascule/trainer_ref/grpo/rollout/rollout_stream.h>
#include <bascule/transport/program/sync_flag.h>

namespace bascule::ref {

struct TrainOptions {
  std::filesystem::path model, out, resume;  // resume: a folder step_N, or empty
  RunState resumed;                          // what `resume` says of itself
  bool allow_changes = false;                // of what a resumed run is made of
  RunConfig run_config;                      // what this run is made of; by resolve_run_config()
  std::filesystem::path reference;           // of the divergence: the run's first model; likewise
  std::string task = "arithmetic";           // or "data"
  std::filesystem::path data, eval_data;     // eval_data: empty, or a file of held-out problems
  DataColumns columns;
  ChatOptions chat;
  int operands = 50;  // of the arithmetic
  RowTokens rows;     // of the problems that are trained on, before any is dropped; by check_task()
  bool supervised = false;
  double label_noise = 0;           // of supervised training
  std::int64_t max_bad_steps = 10;  // in a row, of which none changed the weights, before the run ends

  std::vector<std::string> engines;  // URLs
  std::string sync;  // the endpoint that weights are sent to; empty: one is made with the spawned engines
  SpawnFlags spawn;  // engines that the run starts, instead of `engines`
  // Of spawned engines: starts them and blocks until they listen, at the URLs that it returns; and where each is now.
  std::function<absl::StatusOr<std::vector<std::string>>()> start_engines = nullptr;
  std::function<std::string(std::size_t engine)> engine_url = nullptr;
  std::vector<std::string> config_files = {};  // that this program was given
  absl::Duration request_timeout = absl::Seconds(60);
  absl::Duration engine_timeout = absl::Minutes(2);  // for the engines to join and serve
  at::Device device = at::kCPU;                      // where the policy lies and is trained
  bool is_device_open = true;                        // false: only for a dry run, which found no such device
  ComputeOptions compute;                            // how the policy and its reference compute
  bool dry_run = false;                              // say what the run would take, and end
  bool colocate = false;                             // the engines sleep while the trainer trains

  std::int64_t steps = 60;  // by resolve_steps(), where there are epochs
  double epochs = 0;        // passes over the problems; 0: `steps` were told
  std::size_t prompts_per_step = 32;
  int group_size = 16;
  std::int64_t max_tokens = 16;
  std::int64_t top_k = 0;  // of the rollouts; 0: all tokens
  double top_p = 1;        // likewise; 1: all tokens
  std::uint64_t seed = 0;
  std::int64_t sync_every = 1, max_staleness = 0;
  double min_batch = 0.5;                             // the share of a step's completions that must be left
  bool drop_long = false;                             // leave out prompts that do not fit the engines
  std::string reward;                                 // as told
  std::vector<RewardSpec> rewards;                    // what that says
  absl::Duration reward_timeout = absl::Seconds(60);  // of a program or a server, for one batch
  bool scale_rewards = true;
  OverlongOptions overlong;
  std::int64_t dynamic_sampling = 0;  // how often further problems may be asked in place of flat groups
  bool measure_kl = false;            // keeps the reference although beta is 0
  UpdateOptions update;
  OptimizerOptions optimizer;
  bool decays_to_the_end = false;  // the learning rate, until the run's last optimizer step; by resolve_schedule()

  std::int64_t eval_every = 10, save_every = 0;  // 0: never, but for the last step
  std::size_t eval_problems = 128;
  int eval_samples = 1;  // of each problem
  std::size_t show = 4;  // problems whose completions are printed at each evaluation
  int threads = 1;
  std::string metrics;  // HOST:PORT of a page for those that watch; empty: none
  std::string about;    // a paragraph for the report

  bool needs_reference() const { return update.loss.beta > 0 || measure_kl; }
};

inline constexpr std::int64_t kDefaultSteps = 60;
inline constexpr std::string_view kModelAdvice = "give the folder of a checkpoint, as --model=trainer_ref/demo";
inline constexpr std::string_view kRewardAdvice = "give names with weights, as --reward=exact_match,finished=0.1";
inline constexpr std::string_view kResumeAdvice = "give a folder step_N of an earlier run, as --resume=out/run/step_60";

// From the flags. `log` is told which device --device=auto comes to. INVALID_ARGUMENT names the flag that makes no
// sense, and what would.
absl::StatusOr<TrainOptions> options_from_flags(const std::function<void(std::string_view)>& log =
                                                    [](std::string_view) {});

// Whether the policy's tensors are the slot of `sync` (slots=1).
bool is_single_copy(const std::string& sync);

// Whether a trainer that computes there could send its f32 weights over `sync`, with the other flags as they are.
// INVALID_ARGUMENT names the flag.
absl::Status check_sync_of(const std::string& sync, ComputesOn where, const SpawnFlags& spawn);

// The problems of --task, --data and --eval-data. INVALID_ARGUMENT names the flag.
absl::StatusOr<Task> read_task_of(const TrainOptions& options);

// Of --train-dtype and its kin.
absl::StatusOr<ComputeOptions> compute_from_flags(at::Device device);

// Of --chat and its kin.
absl::StatusOr<ChatOptions> chat_from_flags();

// Turns --epochs into steps, for the problems of `task`. INVALID_ARGUMENT: a resumed run is at the last one already.
absl::Status resolve_steps(TrainOptions& options, const Task& task);

// Lets the learning rate fall until the run's last optimizer step, where the schedule has no other end. Of a run whose
// steps are settled. INVALID_ARGUMENT: it would have to end within the warm-up.
absl::Status resolve_schedule(TrainOptions& options);

// Reads the model's tokenizer and, where `task` needs it, its chat template. INVALID_ARGUMENT names the flag: there is
// no template, it comes to something that is not known here, or variables for a template that nothing needs.
absl::StatusOr<PromptWriter> read_prompt_writer(const TrainOptions& options, const Task& task);

// OK where the model of `options` can read every prompt of `task`, and where it is supervised, learn every answer.
// Fills options.rows. INVALID_ARGUMENT names the flag.
absl::Status check_task(TrainOptions& options, const Task& task, const PromptWriter& prompts);

// The flags that differ from their defaults, for the report.
std::vector<std::pair<std::string, std::string>> flags_given();

}  // namespace bascule::ref
