// The flags of bascule-train, parsed and checked against one another. They never change afterwards: values that depend
// on the checkpoint or the data are in run_plan.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/data/data_file.h>
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/learn/update.h>
#include <bascule/trainer_ref/grpo/process/spawn_options.h>
#include <bascule/trainer_ref/grpo/reward/overlong.h>
#include <bascule/trainer_ref/grpo/reward/reward_list.h>
#include <bascule/trainer_ref/model/lora_config.h>

namespace bascule::ref {

struct TaskFlags {
  std::string kind = "arithmetic";                  // or "data"; "atropos": environments have the problems
  std::filesystem::path data = {}, eval_data = {};  // eval_data: empty, or a file of held-out problems
  DataColumns columns = {};
  ChatOptions chat = {};
  int operands = 50;  // of the arithmetic
};

struct EngineFlags {
  std::vector<std::string> urls = {};
  SpawnFlags spawn = {};  // engines that the run starts, instead of `urls`
  std::string sync = {};  // the endpoint for weights; empty: one is made for the spawned engines, or none is needed
  std::optional<std::string> adapter = {};  // that the engine of --bridge-config takes; empty text: whole models
  bool own = false;                         // --engines=none: this process generates with its own weights
  bool restarts = false;  // --sync=none: the spawned engines are restarted with checkpoints, every `sync_every` steps
  absl::Duration request_timeout = absl::Seconds(60);
  absl::Duration start_timeout = absl::Minutes(2);  // for the engines to join and serve
  std::int64_t sync_every = 1, max_staleness = 0;
  double min_batch = 0.5;  // the share of a step's completions that must remain
  bool drop_long = false;  // leave out prompts that do not fit the engines
  bool colocate = false;   // the engines sleep while the trainer trains
  int threads = 1;         // of this process, which shares the cores with the engines on this host
};

struct RolloutFlags {
  std::int64_t steps = 60;
  double epochs = 0;  // passes over the problems; 0: `steps` were given
  std::size_t prompts_per_step = 32;
  int group_size = 16;
  std::int64_t max_tokens = 16;
  double temperature = 1;
  std::int64_t top_k = 0;  // 0: all tokens
  double top_p = 1;        // 1: all tokens
  double min_p = 0;        // 0: all tokens
  std::uint64_t seed = 0;
  std::int64_t dynamic_sampling = 0;  // how often further problems may replace flat completion groups
};

// Rollouts by environments of Atropos.
struct AtroposFlags {
  std::string url = {};  // of the API server; empty: this program asks the engines itself
  absl::Duration batch_timeout = absl::Minutes(10);

  bool on() const { return !url.empty(); }
};

struct RewardFlags {
  std::string text = {};  // as given
  std::vector<RewardSpec> specs = {};
  absl::Duration timeout = absl::Seconds(60);  // of a program or a server, for one batch
  bool scale = true;
  OverlongOptions overlong = {};
};

struct LearnFlags {
  UpdateOptions update = {};
  OptimizerOptions optimizer = {};  // decay_steps: 0 if the learning rate falls until the run's last optimizer step
  bool measure_kl = false;          // keeps the reference although beta is 0
  double label_noise = 0;           // of supervised training
  std::int64_t max_bad_steps = 10;  // consecutive steps that leave the weights unchanged, before the run ends

  bool needs_reference() const { return update.loss.beta > 0 || measure_kl; }
};

enum class LoraSync { kAdapters, kMerged };  // the adapter alone, or the model with it

struct LoraFlags {
  bool on = false;  // an adapter is trained, and the model stays as it is
  NewLora fresh = {};
  std::filesystem::path adapter = {};  // the adapter to start from; empty: a new one as `fresh`
  LoraSync sync = LoraSync::kAdapters;
  std::string name = {};  // of the adapter at the engines
  std::string base = {};  // the endpoint of a base with the frozen weights; empty: this process has its own
};

struct ComputeFlags {
  at::Device device = at::kCPU;  // where the policy is kept and trained
  bool is_device_open = true;    // false: only for a dry run, which found no such device
  ComputeOptions options = {};   // how the policy and its reference compute
};

struct ReportFlags {
  std::int64_t eval_every = 10, save_every = 0;  // 0: only at the last step
  std::size_t eval_problems = 128;
  int eval_samples = 1;      // of each problem
  std::size_t show = 4;      // problems whose completions are printed at each evaluation
  std::string metrics = {};  // HOST:PORT of the metrics page; empty: none
  std::string about = {};    // a paragraph for the report
};

struct TrainFlags {
  std::filesystem::path model = {}, out = {};  // model: empty if a resumed run's first model is meant
  std::filesystem::path resume = {};           // a folder step_N or adapter_step_N, or empty
  bool allow_changes = false;                  // --allow-changes, for a resumed run
  bool supervised = false;
  bool dry_run = false;  // report the memory and time of the run, and end
  TaskFlags task = {};
  EngineFlags engines = {};
  RolloutFlags rollouts = {};
  AtroposFlags atropos = {};
  RewardFlags reward = {};
  LearnFlags learn = {};
  LoraFlags lora = {};
  ComputeFlags compute = {};
  ReportFlags report = {};
  std::vector<std::pair<std::string, std::string>> given = {};  // flags that differ from their defaults, for the report

  // Of the weights that an adapter leaves as they are.
  DType frozen_dtype() const { return compute.options.dtype == at::kFloat ? DType::kF32 : DType::kBF16; }
};

inline constexpr std::int64_t kDefaultSteps = 60;
inline constexpr std::string_view kRewardAdvice = "give names with weights, as --reward=exact_match,finished=0.1";
inline constexpr std::string_view kResumeAdvice = "give a folder step_N of an earlier run, as --resume=out/run/step_60";

// Whether the policy's tensors are the slot of `sync` (slots=1).
bool is_single_copy(const std::string& sync);

}  // namespace bascule::ref
