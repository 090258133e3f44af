#include <bascule/trainer_ref/grpo/options.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include <bascule/kernels/control_group.h>
#include <bascule/trainer_ref/grpo/engine_threads.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/trainer_ref/program/torch_device.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/text.h>

// What is trained
ABSL_FLAG(
    std::string, model, "",
    "Folder of the checkpoint to start from; also the reference of the divergence. With --resume it may be left out");
ABSL_FLAG(std::string, out, "", "Folder for metrics.jsonl, report.html and the checkpoints step_N");
ABSL_FLAG(std::string, resume, "", "A folder step_N of an earlier run, to continue after that step");
ABSL_FLAG(bool, allow_changes, false,
          "With --resume: go on although flags, model, data or problems are not those of the run; the log names each");
ABSL_FLAG(
    std::string, task, "arithmetic",
    "The problems: arithmetic (sums; answers are written units first: 45+33= gives 87), or data (those of --data)");
ABSL_FLAG(std::string, data, "",
          "With --task=data: a file of JSON lines {\"prompt\": …, \"answer\": …, …}. In place of the prompt's text a "
          "line may "
          "have \"messages\", which the model's chat template writes, or \"prompt_token_ids\"; GSM8K's \"question\" "
          "and \"answer\" are read as they are "
          "(docs/data-and-rewards.md)");
ABSL_FLAG(
    std::string, eval_data, "",
    "With --task=data: a file like --data of the problems to evaluate on. Without it one problem of --data in ten is "
    "held out for that");
ABSL_FLAG(std::string, prompt_column, "prompt",
          "The column of --data that holds the prompt: text, a list of messages or a list of token ids");
ABSL_FLAG(std::string, answer_column, "answer",
          "The column of --data that holds the expected answer; empty: none does, for rewards that need none");
ABSL_FLAG(int, operands, 50, "With --task=arithmetic: the numbers added are below this one, 2 to 50");
ABSL_FLAG(bool, supervised, false,
          "Train on the answers themselves, or on worked ones where the data has them (a column rationale; GSM8K), "
          "without engines, and write a bf16 checkpoint to --out. A --model folder without weights starts from random "
          "ones");
ABSL_FLAG(double, label_noise, 0, "With --supervised: the share of the answers' digits to replace by random ones");

// Engines
ABSL_FLAG(std::vector<std::string>, engines, {}, "URLs of the engines, as http://127.0.0.1:8001,http://127.0.0.1:8002");
ABSL_FLAG(std::string, sync, "",
          "Endpoint for the weights, the same as the engines' --sync: shm:///run/user/1000/grpo, or with --device=cuda "
          "cuda-ipc:///run/user/1000/grpo. With ?wire_dtype=bf16 the f32 weights are cast while they are packed, for "
          "engines with --dtype=bf16: --importance-cap corrects for what their rounding changes. With ?slots=1 the "
          "engines read the trainer's own weights, and yield while the optimizer writes (docs/pair.md)");
ABSL_FLAG(
    std::string, device, "cpu",
    "Where the policy, its reference and the optimizer lie and compute, in f32: cpu, cuda, cuda:N, or auto (a GPU "
    "where this build and this machine have one, else the CPU; the log says which)");
ABSL_FLAG(bool, colocate, false,
          "The engines compute on the trainer's own device: they release their caches while it trains, and it releases "
          "the memory of training while they generate");
ABSL_FLAG(absl::Duration, request_timeout, absl::Seconds(60),
          "How long an engine may take for one prompt's completions");
ABSL_FLAG(absl::Duration, engine_timeout, absl::Minutes(2), "How long to wait for the engines at the start");
ABSL_FLAG(int64_t, sync_every, 1, "Steps between two versions");
ABSL_FLAG(int64_t, max_staleness, 0,
          "How many versions may be published between a token and its use; above 0, engines generate while the trainer "
          "trains; older tokens are dropped");
ABSL_FLAG(double, min_batch, 0.5, "The run ends where less than this share of a step's completions is left");
ABSL_FLAG(bool, drop_long, false,
          "Leave out prompts that do not fit the engines' --max-model-len, instead of refusing them");

// The algorithm
ABSL_FLAG(std::optional<int64_t>, steps, std::nullopt,
          "The last step, also of a resumed run; 60 where neither this nor --epochs is given");
ABSL_FLAG(double, epochs, 0,
          "In place of --steps: passes over the problems of --data; the last step is this times the problems over "
          "--prompts-per-step, rounded up");
ABSL_FLAG(int64_t, prompts_per_step, 32, "Problems of a step");
ABSL_FLAG(int, group_size, 16, "Completions of each problem");
ABSL_FLAG(int64_t, max_tokens, 16, "Longest completion");
ABSL_FLAG(double, temperature, 1, "Temperature at which completions are sampled");
ABSL_FLAG(int64_t, top_k, 0,
          "Completions are sampled from this many of the likeliest tokens; 0: from all. The loss goes on with "
          "probabilities among all tokens (docs/data-and-rewards.md)");
ABSL_FLAG(double, top_p, 1,
          "Completions are sampled from the likeliest tokens that together have this probability, as --top-k");
ABSL_FLAG(
    std::string, reward, "exact_match",
    "Reward functions with weights, as exact_match,finished=0.1: exact_match, number_match, math_match (the final "
    "answer: \\boxed{…}, behind ####, or the last number), finished, within_length, exec:PROGRAM ARGUMENT… (it reads "
    "JSON lines from stdin and answers on stdout) and http://HOST:PORT/PATH (docs/data-and-rewards.md). A weight "
    "stands behind "
    "the last =; a comma, = or blank that belongs to a name has a backslash before it");
ABSL_FLAG(absl::Duration, reward_timeout, absl::Seconds(60),
          "How long a program or server of --reward may take for one batch of at most 1024 completions");
ABSL_FLAG(bool, scale_rewards, true, "Divide advantages by the group's standard deviation");
ABSL_FLAG(std::string, loss, "grpo", "grpo, bnpo, dr_grpo or dapo");
ABSL_FLAG(double, epsilon_low, 0.2, "The probability ratio is clipped below 1 minus this");
ABSL_FLAG(double, epsilon_high, 0.2, "The probability ratio is clipped above 1 plus this");
ABSL_FLAG(double, beta, 0, "Weight of the divergence from --model");
ABSL_FLAG(bool, measure_kl, false, "Measure the divergence also with --beta=0; costs the memory of a second model");
ABSL_FLAG(double, importance_cap, 2,
          "Weight each token by its probability before the step over the engine's, at most this much; 0: do not");
ABSL_FLAG(int64_t, num_iterations, 1, "Optimizer steps over the same completions");
ABSL_FLAG(int64_t, micro_batch, 64, "Completions that go through the model at a time");
ABSL_FLAG(double, learning_rate, 1e-6, "Of AdamW");
ABSL_FLAG(double, weight_decay, 0, "Weight decay of matrices");
ABSL_FLAG(int64_t, warmup_steps, 0, "Optimizer steps over which the learning rate rises");
ABSL_FLAG(int64_t, decay_steps, 0,
          "The optimizer step at which a linear decay of the learning rate would reach 0; 0: no decay");
ABSL_FLAG(double, max_grad_norm, 1, "Gradients are scaled down to this norm; 0: never");
ABSL_FLAG(int64_t, max_bad_steps, 10,
          "A step whose loss or gradients are not finite changes nothing; so many of them in a row end the run");
ABSL_FLAG(uint64_t, seed, 0, "Seed of the order of problems and of sampling");

// The run
ABSL_FLAG(int64_t, eval_every, 10, "Steps between evaluations; 0: only before the first step and after the last");
ABSL_FLAG(int64_t, eval_problems, 128, "Held-out problems of an evaluation");
ABSL_FLAG(int, eval_samples, 1,
          "Completions of each held-out problem, at temperature 1 and from all tokens, whatever the rollouts have");
ABSL_FLAG(int64_t, show, 4, "Problems whose completions are printed at each evaluation");
ABSL_FLAG(int64_t, save_every, 0, "Steps between checkpoints; 0: only after the last step");
ABSL_FLAG(int, threads, 0,
          "Threads that compute; 0: the cores divided by the processes here (this one and the engines on this host). "
          "Engines of --spawn-engines get as many, as far as the cores last");
ABSL_FLAG(
    std::string, metrics, "",
    "HOST:PORT at which the run shows itself: /metrics for Prometheus, /health; port 0 lets the system choose, and "
    "the log says which (docs/pair.md)");
ABSL_FLAG(std::string, about, "", "A sentence or two about the run, for its report");

namespace bascule::ref {
namespace {

constexpr double kLeastTemperature = 1e-6, kMostTemperature = 100;  // between them engines sample
// Beyond these no run makes sense. They also keep each number finite as a float, and each product in 64 bits.
constexpr int kMostCompletions = 65'536;  // of a problem: an engine's --max-batch ends there
constexpr std::int64_t kMostProblems = 1'000'000, kMostTokens = 1 << 20, kMostIterations = 1000;
constexpr double kMostOfANumber = 1e6;
constexpr std::int64_t kDefaultSteps = 60;

bool is_local(const std::string& url) {
  return url.starts_with("http://127.") || url.starts_with("http://localhost") || url.starts_with("http://[::1]");
}

int threads_of(const TrainOptions& options) {
  const auto local = options.spawn.engines + std::count_if(options.engines.begin(), options.engines.end(), is_local);
  return trainer_threads(absl::GetFlag(FLAGS_threads), kernels::usable_cores(), static_cast<int>(local));
}

absl::Status check_algorithm() {
  FlagChecks checks;
  const int group = absl::GetFlag(FLAGS_group_size);
  const double temperature = absl::GetFlag(FLAGS_temperature);
  const std::int64_t top_k = absl::GetFlag(FLAGS_top_k);
  const double top_p = absl::GetFlag(FLAGS_top_p), epochs = absl::GetFlag(FLAGS_epochs);
  const std::optional<std::int64_t> steps = absl::GetFlag(FLAGS_steps);
  checks.at_least<std::int64_t>("steps", steps.value_or(kDefaultSteps), 1)
      .between("epochs", epochs, 0.0, kMostOfANumber, 2.0)
      .that(epochs == 0 || !steps, "epochs", epochs, "--steps=", steps.value_or(0), " is given, too; leave one out")
      .that(epochs == 0 || absl::GetFlag(FLAGS_task) == "data", "epochs", epochs,
            "it counts passes over a file; add --task=data and --data, or give --steps")
      .between<std::int64_t>("prompts-per-step", absl::GetFlag(FLAGS_prompts_per_step), 1, kMostProblems)
      .between("operands", absl::GetFlag(FLAGS_operands), 2, 50)
      .that(absl::GetFlag(FLAGS_supervised) || (group >= 2 && group <= kMostCompletions), "group-size", group,
            "each completion is compared with the others of its problem; give a value from 2 to ", kMostCompletions,
            ", as --group-size=16")
      .between<std::int64_t>("max-tokens", absl::GetFlag(FLAGS_max_tokens), 1, kMostTokens)
      .that(temperature >= kLeastTemperature && temperature <= kMostTemperature, "temperature", temperature,
            "give a value from ", kLeastTemperature, " to ", kMostTemperature,
            ", as --temperature=1; completions of a group must differ")
      .that(top_k == 0 || (top_k >= 2 && top_k <= kMostTokens), "top-k", top_k, "give 0, for all tokens, or a value ",
            "from 2 to ", kMostTokens, ", as --top-k=50; completions of a group must differ")
      .that(top_p > 0 && top_p <= 1, "top-p", top_p,
            "give a value above 0, at most 1, as --top-p=0.95; completions of a group must differ")
      .one_of("task", absl::GetFlag(FLAGS_task), {"arithmetic", "data"})
      .one_of("loss", absl::GetFlag(FLAGS_loss), {"grpo", "bnpo", "dr_grpo", "dapo"})
      .between("epsilon-low", absl::GetFlag(FLAGS_epsilon_low), 0.0, 1.0)
      .between("epsilon-high", absl::GetFlag(FLAGS_epsilon_high), 0.0, kMostOfANumber, 0.2)
      .between("beta", absl::GetFlag(FLAGS_beta), 0.0, kMostOfANumber, 0.04)
      .between("importance-cap", absl::GetFlag(FLAGS_importance_cap), 0.0, kMostOfANumber, 2.0)
      .between<std::int64_t>("num-iterations", absl::GetFlag(FLAGS_num_iterations), 1, kMostIterations)
      .at_least<std::int64_t>("micro-batch", absl::GetFlag(FLAGS_micro_batch), 1)
      .above_zero("learning-rate", absl::GetFlag(FLAGS_learning_rate), 1e-6, kMostOfANumber)
      .between("weight-decay", absl::GetFlag(FLAGS_weight_decay), 0.0, kMostOfANumber, 0.01)
      .at_least<std::int64_t>("warmup-steps", absl::GetFlag(FLAGS_warmup_steps), 0)
      .that(
          absl::GetFlag(FLAGS_decay_steps) == 0 || absl::GetFlag(FLAGS_decay_steps) > absl::GetFlag(FLAGS_warmup_steps),
          "decay-steps", absl::GetFlag(FLAGS_decay_steps),
          "give 0, or more than --warmup-steps, as --decay-steps=", absl::GetFlag(FLAGS_warmup_steps) + 100)
      .between("max-grad-norm", absl::GetFlag(FLAGS_max_grad_norm), 0.0, kMostOfANumber, 1.0)
      .at_least<std::int64_t>("max-bad-steps", absl::GetFlag(FLAGS_max_bad_steps), 1)
      .between("label-noise", absl::GetFlag(FLAGS_label_noise), 0.0, 1.0);
  return checks.status();
}

absl::Status check_run(int spawned) {
  const std::vector<std::string> engines = absl::GetFlag(FLAGS_engines);
  const bool supervised = absl::GetFlag(FLAGS_supervised);
  const std::string task = absl::GetFlag(FLAGS_task), data = absl::GetFlag(FLAGS_data);
  FlagChecks checks;
  checks
      .that(!absl::GetFlag(FLAGS_model).empty() || !absl::GetFlag(FLAGS_resume).empty(), "model", "",
            "give the folder of a checkpoint, as --model=trainer_ref/demo")
      .that(!absl::GetFlag(FLAGS_allow_changes) || !absl::GetFlag(FLAGS_resume).empty(), "allow-changes", true,
            "it is for runs that go on; add --resume, or leave it out")
      .not_empty("out", absl::GetFlag(FLAGS_out), "a folder for the results", "out/run")
      .that(task != "data" || !data.empty(), "data", data,
            "--task=data needs a file of JSON lines, as --data=problems.jsonl")
      .that(task == "data" || data.empty(), "data", data, "add --task=data to train on this file")
      .that(task == "data" || absl::GetFlag(FLAGS_eval_data).empty(), "eval-data", absl::GetFlag(FLAGS_eval_data),
            "add --task=data and --data: the arithmetic has held-out problems of its own")
      .not_empty("prompt-column", absl::GetFlag(FLAGS_prompt_column), "the name of a column", "prompt")
      .that(supervised || spawned > 0 || !engines.empty(), "engines", "",
            "give the URLs of the engines, as --engines=http://127.0.0.1:8001, or --spawn-engines=2, which starts some "
            "(or "
            "--supervised, which needs none)")
      .that(spawned == 0 || engines.empty(), "engines", engines.empty() ? "" : engines.front(),
            "--spawn-engines starts engines of this run's own; leave one of the two out")
      .that(spawned == 0 || !supervised, "spawn-engines", spawned, "a supervised run has no engines; leave it out")
      .that(supervised || spawned > 0 || !absl::GetFlag(FLAGS_sync).empty(), "sync", "",
            "give the endpoint that the engines were started with, as --sync=shm:///run/user/1000/grpo")
      .that(!supervised || absl::GetFlag(FLAGS_resume).empty(), "resume", absl::GetFlag(FLAGS_resume),
            "a supervised run cannot be resumed; leave it out")
      .that(std::set<std::string>(engines.begin(), engines.end()).size() == engines.size(), "engines", "…",
            "the same URL stands twice; give each engine once")
      .positive_time("request-timeout", absl::GetFlag(FLAGS_request_timeout), "60s")
      .positive_time("reward-timeout", absl::GetFlag(FLAGS_reward_timeout), "60s")
      .positive_time("engine-timeout", absl::GetFlag(FLAGS_engine_timeout), "2m")
      .at_least<std::int64_t>("sync-every", absl::GetFlag(FLAGS_sync_every), 1)
      .at_least<std::int64_t>("max-staleness", absl::GetFlag(FLAGS_max_staleness), 0)
      .between("min-batch", absl::GetFlag(FLAGS_min_batch), 0.0, 1.0, 0.5)
      .that(!absl::GetFlag(FLAGS_colocate) || !supervised, "colocate", true,
            "a supervised run has no engines; leave it out")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_max_staleness) == 0, "max-staleness",
            absl::GetFlag(FLAGS_max_staleness), "with --colocate engines sleep while the trainer trains; give 0")
      .that(!absl::GetFlag(FLAGS_colocate) || absl::GetFlag(FLAGS_sync_every) == 1, "sync-every",
            absl::GetFlag(FLAGS_sync_every), "with --colocate engines wake up for each step's version; give 1")
      .at_least<std::int64_t>("eval-every", absl::GetFlag(FLAGS_eval_every), 0)
      .at_least<std::int64_t>("eval-problems", absl::GetFlag(FLAGS_eval_problems), 1)
      .between("eval-samples", absl::GetFlag(FLAGS_eval_samples), 1, kMostCompletions)
      .at_least<std::int64_t>("show", absl::GetFlag(FLAGS_show), 0)
      .at_least<std::int64_t>("save-every", absl::GetFlag(FLAGS_save_every), 0)
      .between("threads", absl::GetFlag(FLAGS_threads), 0, 1024);
  for (const std::string& url : engines)
    if (const absl::Status status = check_url(url); !status.ok())
      checks.that(false, "engines", url, status.message(), ", as --engines=http://127.0.0.1:8001");
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
                              ": expected a folder in which this run may replace every step_*, found ",
                              entry->path().string(), ", which contains --model=", model.string(),
                              "; give another --out, or --resume to go on with the run that wrote it");
  }
  return absl::OkStatus();
}

// The run that --resume continues, where it can go on under these flags.
absl::StatusOr<RunState> check_resume(const std::string& folder) {
  const absl::StatusOr<RunState> state = read_run_state(folder);
  BASCULE_TRY(of_flag(state.status(), "resume", folder, kResumeAdvice));
  const std::uint64_t seed = absl::GetFlag(FLAGS_seed);
  const std::int64_t steps = absl::GetFlag(FLAGS_steps).value_or(kDefaultSteps);
  const bool by_epochs = absl::GetFlag(FLAGS_epochs) > 0;  // settle_steps() looks at them
  FlagChecks checks;
  checks
      .that(state->seed == seed || !state->origin.flags.empty(), "seed", seed, folder,
            " was trained with --seed=", state->seed, "; a resumed run keeps its seed")
      .that(by_epochs || state->step < steps, "steps", steps, folder, " is at step ", state->step,
            " already; give a larger one, as --steps=", state->step + 60);
  if (!checks.status().ok()) return checks.status();
  return state;
}

// --model, or what a run that is resumed began with.
absl::StatusOr<std::filesystem::path> model_of(const RunState& resumed) {
  if (const std::string model = absl::GetFlag(FLAGS_model); !model.empty()) return model;
  const std::filesystem::path& first = resumed.origin.model;
  if (std::error_code error; !std::filesystem::is_directory(first, error))
    return invalid_argument("--model=: the model that the run began with",
                            first.empty() ? " is not known" : cat(", ", first.string(), ", is gone"),
                            "; give a folder that holds it, as --model=FOLDER");
  return first;
}

}  // namespace

absl::StatusOr<TrainOptions> options_from_flags(const std::function<void(std::string_view)>& log) {
  TrainOptions options;
  BASCULE_ASSIGN(options.spawn, spawn_flags());
  BASCULE_TRY(check_run(options.spawn.engines));
  BASCULE_TRY(check_algorithm());
  options.sync = absl::GetFlag(FLAGS_sync);
  // Before the device is opened, which takes seconds, unless only that tells.
  const std::string device = absl::GetFlag(FLAGS_device);
  const auto check = [&](bool on_host) {
    const bool needless = absl::GetFlag(FLAGS_supervised) || options.sync.empty();
    return needless ? absl::OkStatus()
                    : check_sync_of(options.sync, on_host ? ComputesOn::kHost : ComputesOn::kGpu, options.spawn);
  };
  if (device != "auto") BASCULE_TRY(check(device == "cpu"));
  BASCULE_ASSIGN(options.device, open_torch_device(device, log));
  if (device == "auto") BASCULE_TRY(check(options.device.is_cpu()));
  options.out = absl::GetFlag(FLAGS_out);
  options.resume = absl::GetFlag(FLAGS_resume);
  if (!options.resume.empty()) {
    BASCULE_ASSIGN(options.resumed, check_resume(options.resume.string()));
  }
  BASCULE_ASSIGN(options.model, model_of(options.resumed));
  options.allow_changes = absl::GetFlag(FLAGS_allow_changes);
  options.task = absl::GetFlag(FLAGS_task);
  options.data = absl::GetFlag(FLAGS_data);
  options.eval_data = absl::GetFlag(FLAGS_eval_data);
  options.columns = {.prompt = absl::GetFlag(FLAGS_prompt_column), .answer = absl::GetFlag(FLAGS_answer_column)};
  BASCULE_ASSIGN(options.chat, chat_from_flags());
  options.operands = absl::GetFlag(FLAGS_operands);
  options.supervised = absl::GetFlag(FLAGS_supervised);
  if (!options.supervised) BASCULE_TRY(check_out(options.model, options.out));
  options.label_noise = absl::GetFlag(FLAGS_label_noise);
  options.engines = absl::GetFlag(FLAGS_engines);
  for (std::string& url : options.engines)
    while (url.ends_with('/')) url.pop_back();
  options.colocate = absl::GetFlag(FLAGS_colocate);
  options.request_timeout = absl::GetFlag(FLAGS_request_timeout);
  options.engine_timeout = absl::GetFlag(FLAGS_engine_timeout);
  options.steps = absl::GetFlag(FLAGS_steps).value_or(kDefaultSteps);
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.prompts_per_step = static_cast<std::size_t>(absl::GetFlag(FLAGS_prompts_per_step));
  options.group_size = absl::GetFlag(FLAGS_group_size);
  options.max_tokens = absl::GetFlag(FLAGS_max_tokens);
  options.top_k = absl::GetFlag(FLAGS_top_k);
  options.top_p = absl::GetFlag(FLAGS_top_p);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.sync_every = absl::GetFlag(FLAGS_sync_every);
  options.max_staleness = absl::GetFlag(FLAGS_max_staleness);
  options.min_batch = absl::GetFlag(FLAGS_min_batch);
  options.drop_long = absl::GetFlag(FLAGS_drop_long);
  const std::string reward = absl::GetFlag(FLAGS_reward);
  absl::StatusOr<std::vector<RewardSpec>> rewards = parse_rewards(reward);
  BASCULE_TRY(of_flag(rewards.status(), "reward", reward, kRewardAdvice));
  options.reward = reward;
  options.rewards = *std::move(rewards);
  options.reward_timeout = absl::GetFlag(FLAGS_reward_timeout);
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
  options.max_bad_steps = absl::GetFlag(FLAGS_max_bad_steps);
  options.eval_every = absl::GetFlag(FLAGS_eval_every);
  options.save_every = absl::GetFlag(FLAGS_save_every);
  options.eval_problems = static_cast<std::size_t>(absl::GetFlag(FLAGS_eval_problems));
  options.eval_samples = absl::GetFlag(FLAGS_eval_samples);
  options.show = static_cast<std::size_t>(absl::GetFlag(FLAGS_show));
  options.threads = threads_of(options);
  options.metrics = absl::GetFlag(FLAGS_metrics);
  options.about = absl::GetFlag(FLAGS_about);
  return options;
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
