#include "trainer_ref/grpo/options.h"

#include <algorithm>
#include <set>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include "trainer_ref/program/checks.h"
#include "trainer_ref/program/torch_device.h"
#include "transport/text.h"

// What is trained
ABSL_FLAG(std::string, model, "", "Folder of the checkpoint to start from, and the reference of the divergence");
ABSL_FLAG(std::string, out, "", "Folder for metrics.jsonl, report.html and the checkpoints step_N");
ABSL_FLAG(std::string, resume, "", "A folder step_N of an earlier run: goes on behind that step");
ABSL_FLAG(std::string, task, "arithmetic", "What is asked: arithmetic (sums), or data (the problems of --data)");
ABSL_FLAG(std::string, data, "", "With --task=data: a file of JSON lines {\"prompt\": …, \"answer\": …, …}");
ABSL_FLAG(int, operands, 50, "With --task=arithmetic: numbers below this one are added, 2 to 50");
ABSL_FLAG(bool, supervised, false,
          "Train on the answers themselves, without engines, and write a bf16 checkpoint to --out. A --model folder "
          "without weights is started from random ones");
ABSL_FLAG(double, label_noise, 0, "With --supervised: share of the answers' digits that are replaced by random ones");

// Engines
ABSL_FLAG(std::vector<std::string>, engines, {}, "URLs of the engines, as http://127.0.0.1:8001,http://127.0.0.1:8002");
ABSL_FLAG(std::string, sync, "",
          "Endpoint that weights are sent to, the engines' --sync: shm:///run/user/1000/grpo, or with --device=cuda "
          "cuda-ipc:///run/user/1000/grpo. With ?wire_dtype=bf16 the f32 weights are cast while they are packed, for "
          "engines with --dtype=bf16: --importance-cap corrects for what their rounding changes");
ABSL_FLAG(std::string, device, "cpu",
          "Where the policy, its reference and the optimizer lie and compute, in f32: cpu, cuda or cuda:N");
ABSL_FLAG(bool, colocate, false,
          "The engines compute on the trainer's own device: they give their caches back while it trains, and it gives "
          "back what training needed while they generate");
ABSL_FLAG(absl::Duration, request_timeout, absl::Seconds(60),
          "How long an engine may take for one prompt's completions");
ABSL_FLAG(absl::Duration, engine_timeout, absl::Minutes(2), "How long to wait for the engines at the start");
ABSL_FLAG(int64_t, sync_every, 1, "Steps between two versions");
ABSL_FLAG(int64_t, max_staleness, 0,
          "Versions that may be published between a token and its use: above 0, engines generate while the trainer "
          "trains; older tokens are dropped");

// The algorithm
ABSL_FLAG(int64_t, steps, 60, "The last step (of a resumed run, too)");
ABSL_FLAG(int64_t, prompts_per_step, 32, "Problems of a step");
ABSL_FLAG(int, group_size, 16, "Completions of each problem");
ABSL_FLAG(int64_t, max_tokens, 16, "Longest completion");
ABSL_FLAG(double, temperature, 1, "At which completions are sampled");
ABSL_FLAG(
    std::string, reward, "exact_match",
    "Reward functions with weights, as exact_match,finished=0.1: exact_match, number_match, finished, within_length");
ABSL_FLAG(bool, scale_rewards, true, "Divide advantages by the group's standard deviation");
ABSL_FLAG(std::string, loss, "grpo", "grpo, bnpo, dr_grpo or dapo");
ABSL_FLAG(double, epsilon_low, 0.2, "The probability ratio is clipped below 1 - this");
ABSL_FLAG(double, epsilon_high, 0.2, "and above 1 + this");
ABSL_FLAG(double, beta, 0, "Weight of the divergence from --model");
ABSL_FLAG(bool, measure_kl, false, "Measure the divergence with --beta=0 too: costs a second model");
ABSL_FLAG(
    double, importance_cap, 2,
    "Tokens are weighted by their probability before the step over the engine's, at most this much; 0: not at all");
ABSL_FLAG(int64_t, num_iterations, 1, "Optimizer steps over the same completions");
ABSL_FLAG(int64_t, micro_batch, 64, "Completions that go through the model at a time");
ABSL_FLAG(double, learning_rate, 1e-6, "Of AdamW");
ABSL_FLAG(double, weight_decay, 0, "Of matrices");
ABSL_FLAG(int64_t, warmup_steps, 0, "Optimizer steps over which the learning rate climbs");
ABSL_FLAG(int64_t, decay_steps, 0,
          "The optimizer step at which a linear fall of the learning rate would reach 0; 0: it stays");
ABSL_FLAG(double, max_grad_norm, 1, "Gradients are scaled down to this norm; 0: never");
ABSL_FLAG(uint64_t, seed, 0, "Of the order of problems and of sampling");

// The run
ABSL_FLAG(int64_t, eval_every, 10, "Steps between evaluations; 0: only before the first step and after the last");
ABSL_FLAG(int64_t, eval_problems, 128, "Held-out problems of an evaluation");
ABSL_FLAG(int, eval_samples, 1, "Completions of each of them at temperature 1");
ABSL_FLAG(int64_t, show, 4, "Problems whose completions are printed at each evaluation");
ABSL_FLAG(int64_t, save_every, 0, "Steps between checkpoints; 0: only after the last step");
ABSL_FLAG(int, threads, 0, "For computing; 0: cores over local processes (this one and the engines on this host)");
ABSL_FLAG(std::string, about, "", "A sentence or two about the run, for its report");

namespace bascule::ref {
namespace {

constexpr double kLeastTemperature = 1e-6;  // below it engines always take the likeliest token

bool is_local(const std::string& url) {
  return url.starts_with("http://127.") || url.starts_with("http://localhost") || url.starts_with("http://[::1]");
}

int default_threads(const std::vector<std::string>& engines) {
  const auto processes = 1 + std::count_if(engines.begin(), engines.end(), is_local);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / static_cast<unsigned>(processes)));
}

absl::Status check_algorithm() {
  FlagChecks checks;
  checks.at_least<std::int64_t>("steps", absl::GetFlag(FLAGS_steps), 1)
      .at_least<std::int64_t>("prompts-per-step", absl::GetFlag(FLAGS_prompts_per_step), 1)
      .at_least("group-size", absl::GetFlag(FLAGS_group_size), 1)
      .at_least<std::int64_t>("max-tokens", absl::GetFlag(FLAGS_max_tokens), 1)
      .that(absl::GetFlag(FLAGS_temperature) >= kLeastTemperature, "temperature", absl::GetFlag(FLAGS_temperature),
            "give ", kLeastTemperature, " or more, as 1; completions of a group must differ")
      .one_of("task", absl::GetFlag(FLAGS_task), {"arithmetic", "data"})
      .one_of("loss", absl::GetFlag(FLAGS_loss), {"grpo", "bnpo", "dr_grpo", "dapo"})
      .between("epsilon-low", absl::GetFlag(FLAGS_epsilon_low), 0.0, 1.0)
      .at_least("epsilon-high", absl::GetFlag(FLAGS_epsilon_high), 0.0)
      .at_least("beta", absl::GetFlag(FLAGS_beta), 0.0)
      .at_least("importance-cap", absl::GetFlag(FLAGS_importance_cap), 0.0)
      .at_least<std::int64_t>("num-iterations", absl::GetFlag(FLAGS_num_iterations), 1)
      .at_least<std::int64_t>("micro-batch", absl::GetFlag(FLAGS_micro_batch), 1)
      .that(absl::GetFlag(FLAGS_learning_rate) > 0, "learning-rate", absl::GetFlag(FLAGS_learning_rate),
            "give a value above 0")
      .at_least("weight-decay", absl::GetFlag(FLAGS_weight_decay), 0.0)
      .at_least<std::int64_t>("warmup-steps", absl::GetFlag(FLAGS_warmup_steps), 0)
      .that(
          absl::GetFlag(FLAGS_decay_steps) == 0 || absl::GetFlag(FLAGS_decay_steps) > absl::GetFlag(FLAGS_warmup_steps),
          "decay-steps", absl::GetFlag(FLAGS_decay_steps), "give 0, or more than --warmup-steps")
      .at_least("max-grad-norm", absl::GetFlag(FLAGS_max_grad_norm), 0.0)
      .between("label-noise", absl::GetFlag(FLAGS_label_noise), 0.0, 1.0);
  return checks.status();
}

absl::Status check_run() {
  const std::vector<std::string> engines = absl::GetFlag(FLAGS_engines);
  const bool supervised = absl::GetFlag(FLAGS_supervised);
  const std::string task = absl::GetFlag(FLAGS_task), data = absl::GetFlag(FLAGS_data);
  FlagChecks checks;
  checks.not_empty("model", absl::GetFlag(FLAGS_model), "the folder of a checkpoint")
      .not_empty("out", absl::GetFlag(FLAGS_out), "a folder for the results")
      .that(task != "data" || !data.empty(), "data", data, "--task=data needs a file of JSON lines")
      .that(task == "data" || data.empty(), "data", data, "add --task=data to train on this file")
      .that(supervised || !engines.empty(), "engines", "",
            "give the URLs of the engines, as http://127.0.0.1:8001 (or --supervised, which needs none)")
      .that(supervised || !absl::GetFlag(FLAGS_sync).empty(), "sync", "",
            "give the endpoint that the engines were started with, as shm:///run/user/1000/grpo")
      .that(!supervised || absl::GetFlag(FLAGS_resume).empty(), "resume", absl::GetFlag(FLAGS_resume),
            "a supervised run cannot be resumed; leave it out")
      .that(std::set<std::string>(engines.begin(), engines.end()).size() == engines.size(), "engines", "…",
            "the same URL stands twice; give each engine once")
      .that(absl::GetFlag(FLAGS_request_timeout) > absl::ZeroDuration(), "request-timeout",
            absl::FormatDuration(absl::GetFlag(FLAGS_request_timeout)), "give a time above 0, as 60s")
      .at_least<std::int64_t>("sync-every", absl::GetFlag(FLAGS_sync_every), 1)
      .at_least<std::int64_t>("max-staleness", absl::GetFlag(FLAGS_max_staleness), 0)
      .that(!absl::GetFlag(FLAGS_colocate) || !supervised, "colocate", true,
            "a supervised run has no engines; leave it out")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_max_staleness) == 0, "max-staleness",
            absl::GetFlag(FLAGS_max_staleness), "with --colocate engines sleep while the trainer trains; give 0")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_sync_every) == 1, "sync-every",
            absl::GetFlag(FLAGS_sync_every), "with --colocate engines wake up for each step's version; give 1")
      .at_least<std::int64_t>("eval-every", absl::GetFlag(FLAGS_eval_every), 0)
      .at_least<std::int64_t>("eval-problems", absl::GetFlag(FLAGS_eval_problems), 1)
      .at_least("eval-samples", absl::GetFlag(FLAGS_eval_samples), 1)
      .at_least<std::int64_t>("show", absl::GetFlag(FLAGS_show), 0)
      .at_least<std::int64_t>("save-every", absl::GetFlag(FLAGS_save_every), 0)
      .at_least("threads", absl::GetFlag(FLAGS_threads), 0);
  for (const std::string& url : engines)
    checks.that(url.starts_with("http://"), "engines", url, "expected http://HOST:PORT");
  return checks.status();
}

// A run writes its checkpoints to --out/step_N: over the model that it started from, if that lies there. Folders are
// compared, not their names: either may be relative, or go over a link.
absl::Status check_out(const std::filesystem::path& model, const std::filesystem::path& out) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> around;  // the model's folder and those that it lies in
  for (fs::path folder = fs::weakly_canonical(model, error); folder.has_relative_path(); folder = folder.parent_path())
    around.push_back(folder);
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("step_")) continue;
    const bool held = std::any_of(around.begin(), around.end(), [&](const fs::path& folder) {
      std::error_code ignored;
      return fs::equivalent(folder, entry->path(), ignored);
    });
    if (held)
      return invalid_argument("--out=", out.string(),
                              ": expected a folder whose step_* this run may write over, found ",
                              entry->path().string(), ", which holds --model=", model.string(),
                              "; give another --out, or --resume to go on with the run that wrote it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainOptions> options_from_flags() {
  BASCULE_TRY(check_run());
  BASCULE_TRY(check_algorithm());
  TrainOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  options.out = absl::GetFlag(FLAGS_out);
  options.resume = absl::GetFlag(FLAGS_resume);
  options.task = absl::GetFlag(FLAGS_task);
  options.data = absl::GetFlag(FLAGS_data);
  options.operands = absl::GetFlag(FLAGS_operands);
  options.supervised = absl::GetFlag(FLAGS_supervised);
  if (!options.supervised) BASCULE_TRY(check_out(options.model, options.out));
  options.label_noise = absl::GetFlag(FLAGS_label_noise);
  options.engines = absl::GetFlag(FLAGS_engines);
  for (std::string& url : options.engines)
    while (url.ends_with('/')) url.pop_back();
  options.sync = absl::GetFlag(FLAGS_sync);
  BASCULE_ASSIGN(options.device, open_torch_device(absl::GetFlag(FLAGS_device)));
  options.colocate = absl::GetFlag(FLAGS_colocate);
  options.request_timeout = absl::GetFlag(FLAGS_request_timeout);
  options.engine_timeout = absl::GetFlag(FLAGS_engine_timeout);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.prompts_per_step = static_cast<std::size_t>(absl::GetFlag(FLAGS_prompts_per_step));
  options.group_size = absl::GetFlag(FLAGS_group_size);
  options.max_tokens = absl::GetFlag(FLAGS_max_tokens);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.sync_every = absl::GetFlag(FLAGS_sync_every);
  options.max_staleness = absl::GetFlag(FLAGS_max_staleness);
  BASCULE_ASSIGN(options.rewards, parse_rewards(absl::GetFlag(FLAGS_reward)));
  options.scale_rewards = absl::GetFlag(FLAGS_scale_rewards);
  options.measure_kl = absl::GetFlag(FLAGS_measure_kl);
  options.update = {.loss = {.kind = *loss_kind_named(absl::GetFlag(FLAGS_loss)),
                             .epsilon_low = absl::GetFlag(FLAGS_epsilon_low),
                             .epsilon_high = absl::GetFlag(FLAGS_epsilon_high),
                             .beta = absl::GetFlag(FLAGS_beta),
                             .importance_cap = absl::GetFlag(FLAGS_importance_cap),
                             .max_tokens = options.max_tokens},
                    .num_iterations = absl::GetFlag(FLAGS_num_iterations),
                    .micro_batch = static_cast<std::size_t>(absl::GetFlag(FLAGS_micro_batch)),
                    .temperature = absl::GetFlag(FLAGS_temperature)};
  options.optimizer = {.learning_rate = absl::GetFlag(FLAGS_learning_rate),
                       .weight_decay = absl::GetFlag(FLAGS_weight_decay),
                       .warmup_steps = absl::GetFlag(FLAGS_warmup_steps),
                       .decay_steps = absl::GetFlag(FLAGS_decay_steps),
                       .max_grad_norm = absl::GetFlag(FLAGS_max_grad_norm)};
  options.eval_every = absl::GetFlag(FLAGS_eval_every);
  options.save_every = absl::GetFlag(FLAGS_save_every);
  options.eval_problems = static_cast<std::size_t>(absl::GetFlag(FLAGS_eval_problems));
  options.eval_samples = absl::GetFlag(FLAGS_eval_samples);
  options.show = static_cast<std::size_t>(absl::GetFlag(FLAGS_show));
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads == 0) options.threads = default_threads(options.engines);
  options.about = absl::GetFlag(FLAGS_about);
  return options;
}

absl::StatusOr<Task> read_task_of(const TrainOptions& options) {
  return options.task == "data" ? read_task(options.data) : arithmetic_task(options.operands);
}

std::vector<std::pair<std::string, std::string>> flags_given() {
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& [name, flag] : absl::GetAllFlags())
    if (flag->CurrentValue() != flag->DefaultValue() && name != "about")
      given.emplace_back(absl::StrReplaceAll(name, {{"_", "-"}}), flag->CurrentValue());
  std::sort(given.begin(), given.end());
  return given;
}

}  // namespace bascule::ref
