#include <bascule/trainer_ref/grpo/options/resume.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include <bascule/trainer_ref/grpo/options/starting_adapter.h>
#include <bascule/trainer_ref/grpo/run/run_folder.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// These do not include paths and timeouts, --steps and --epochs, flags that only measure, and flags such as
// --micro-batch, which a run that ran out of memory must be able to change.
constexpr const char* kFlags =
    "task operands prompt_column answer_column sync_every restart_every max_staleness max_tokens group_size "
    "temperature reward "
    "scale_rewards prompts_per_step loss epsilon_low epsilon_high beta seed importance_cap learning_rate "
    "num_iterations weight_decay warmup_steps decay_steps lr_schedule min_learning_rate importance_level "
    "off_policy_mask mini_batches overlong_buffer overlong_penalty dynamic_sampling max_grad_norm top_k top_p min_p "
    "chat "
    "system_prompt chat_template_kwargs engine_dtype lora_rank lora_alpha lora_rslora lora_targets lora_dropout";

constexpr std::string_view kKeptTask = "kept-task";  // the problems that --drop-long left

// The current or default values of the flags that change what a run learns: "learning-rate" → "1e-06".
using FlagValue = std::string (absl::CommandLineFlag::*)() const;
std::map<std::string, std::string> flags_that_matter(FlagValue value) {
  std::map<std::string, std::string> flags;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(kFlags, ' ')))
    if (const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name); flag != nullptr)
      flags[absl::StrReplaceAll(name, {{"_", "-"}})] = (flag->*value)();
  return flags;
}

absl::StatusOr<RunConfig> run_config_now(const TrainFlags& flags, const fs::path& model, const std::string& sync,
                                         const Task& task) {
  std::error_code ignored;
  RunConfig config{.flags = flags_that_matter(&absl::CommandLineFlag::CurrentValue),
                   .model = fs::weakly_canonical(model, ignored)};
  BASCULE_ASSIGN(config.fingerprints, fingerprints_of_model(model));
  if (!flags.task.data.empty()) {
    BASCULE_ASSIGN(config.fingerprints["data"], fingerprint_of_file(flags.task.data));
  }
  if (!flags.task.eval_data.empty()) {
    BASCULE_ASSIGN(config.fingerprints["eval-data"], fingerprint_of_file(flags.task.eval_data));
  }
  if (needs_template(flags.task.chat, task)) {
    BASCULE_ASSIGN(config.fingerprints["chat-template"], fingerprint_of_chat_template(model));
  }
  for (const RewardSpec& reward : flags.reward.specs)
    for (const std::string& word : reward.command)  // a program found in PATH is not the run's
      if (fs::is_regular_file(word, ignored)) {
        BASCULE_ASSIGN(config.fingerprints[cat("reward/", word)], fingerprint_of_file(word));
      }
  // Engines that get bf16 sample other completions, whichever flag selects it.
  if (absl::StrContains(sync, "wire_dtype=bf16")) config.flags["engine-dtype"] = "bf16";
  config.flags["train-dtype"] = flags.compute.options.dtype == at::kFloat ? "f32" : "bf16";  // auto is resolved
  config.fingerprints["task"] = fingerprint_of(task);
  return config;
}

// Checks that the run's first model still exists, if --model names another one.
absl::Status check_first_model(const RunConfig& run) {
  const absl::StatusOr<Fingerprints> there = fingerprints_of_model(run.model);
  if (there.ok() && same_model(run.fingerprints, *there)) return absl::OkStatus();
  return invalid_argument("--model: the divergence is measured from the model that the run began with, ",
                          run.model.string(), ", which is ", there.ok() ? "no longer the same" : "gone",
                          "; give a folder that holds it, as --model=FOLDER");
}

// Adds the defaults of flags that an older version, which wrote the run, did not have.
RunConfig with_defaults(RunConfig run) {
  if (!run.flags.empty()) run.flags.merge(flags_that_matter(&absl::CommandLineFlag::DefaultValue));
  return run;
}

absl::Status refuse_unless_allowed(const TrainFlags& flags, const std::vector<std::string>& different,
                                   const std::function<void(std::string_view)>& log) {
  const std::string resume = cat("--resume=", flags.resume.string(), ": ");
  if (!different.empty() && !flags.allow_changes)
    return invalid_argument(resume, absl::StrJoin(different, "; "),
                            "; give what the run had, or continue with these by --allow-changes");
  for (const std::string& each : different) log(cat(resume, each, "; continuing, by --allow-changes"));
  return absl::OkStatus();
}

// Refuses an --out whose step_N contains the model, since a checkpoint would replace it. Compares folders and not their
// names, which may be relative or have symbolic links.
absl::Status check_out(const fs::path& model, const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> around;  // the model's folder and all that contain it
  for (fs::path folder = fs::weakly_canonical(model, error); folder.has_relative_path(); folder = folder.parent_path())
    around.push_back(folder);
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    if (!step_of_checkpoint(entry->path().filename().string())) continue;
    const bool held = std::any_of(around.begin(), around.end(), [&](const fs::path& folder) {
      std::error_code ignored;
      return fs::equivalent(folder, entry->path(), ignored);
    });
    if (held)
      return invalid_argument(
          "--out=", out.string(),
          ": expected a folder in which this run may replace every step_* and adapter_step_*, found ",
          entry->path().string(), ", which contains --model=", model.string(),
          "; give another --out, or --resume to continue the run that wrote it");
  }
  return absl::OkStatus();
}

// Returns the state of the run that --resume continues, if it can continue with these flags.
absl::StatusOr<RunState> check_resume(const TrainFlags& flags) {
  const std::string folder = flags.resume.string();
  const absl::StatusOr<RunState> state = read_run_state(folder);
  BASCULE_TRY(of_flag(state.status(), "resume", folder, kResumeAdvice));
  const std::uint64_t seed = flags.rollouts.seed;
  const std::int64_t steps = flags.rollouts.steps;
  const bool by_epochs = flags.rollouts.epochs > 0;  // resolve_steps() checks those
  FlagChecks checks;
  checks
      .that(state->seed == seed || !state->run_config.flags.empty(), "seed", seed, folder,
            " was trained with --seed=", state->seed, "; a resumed run keeps its seed")
      .that(by_epochs || state->step < steps, "steps", steps, folder, " is at step ", state->step,
            " already; give a larger one, as --steps=", state->step + 60);
  if (!checks.status().ok()) return checks.status();
  return state;
}

// Returns --model, or the resumed run's first model.
absl::StatusOr<fs::path> model_of(const TrainFlags& flags, const RunState& resumed) {
  if (!flags.model.empty()) return flags.model;
  const fs::path& first = resumed.run_config.model;
  if (std::error_code error; !fs::is_directory(first, error))
    return invalid_argument("--model=: the model that the run began with",
                            first.empty() ? " is not known" : cat(", ", first.string(), ", is gone"),
                            "; give a folder that holds it, as --model=FOLDER");
  return first;
}

}  // namespace

absl::StatusOr<StartPoint> read_start(const TrainFlags& flags) {
  StartPoint start;
  if (!flags.resume.empty()) {
    BASCULE_ASSIGN(start.resumed, check_resume(flags));
    BASCULE_TRY(check_resumed_adapter(flags));
  }
  BASCULE_ASSIGN(start.model, model_of(flags, start.resumed));
  if (!flags.supervised && !flags.dry_run) BASCULE_TRY(check_out(start.model, flags.out));
  return start;
}

absl::StatusOr<RunConfig> resolve_kept_task(const TrainFlags& flags, const RunState& resumed, RunConfig config,
                                            const Task& task, const std::function<void(std::string_view)>& log) {
  const bool drops = flags.engines.drop_long;
  if (!drops && flags.resume.empty()) return config;
  const std::string key(kKeptTask), found = fingerprint_of(task);
  if (drops) config.fingerprints[key] = found;
  const Fingerprints& run = resumed.run_config.fingerprints;
  const auto all = run.find("task"), kept = run.find(key), before = kept == run.end() ? all : kept;
  if (flags.resume.empty() || before == run.end() || before->second == found) return config;
  // Already reported by resolve_run_config().
  if (all != run.end() && all->second != config.fingerprints["task"]) return config;
  BASCULE_TRY(refuse_unless_allowed(
      flags,
      {cat("--drop-long: the run was trained on ",
           kept == run.end() ? "all problems" : "the problems that fit its engines' --max-model-len", ", found ",
           drops ? cat("the ", task.train.size() + task.held_out.size(), " that fit these engines'") : "all problems")},
      log));
  return config;
}

absl::StatusOr<ResumableConfig> resolve_run_config(const TrainFlags& flags, const StartPoint& start,
                                                   const std::string& sync, const Task& task,
                                                   const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(RunConfig found, run_config_now(flags, start.model, sync, task));
  if (flags.lora.on && flags.lora.fresh.rank == 0)  // the adapter in the folder decides
    std::erase_if(found.flags, [](const auto& flag) { return flag.first.starts_with("lora-"); });
  if (flags.resume.empty()) return ResumableConfig{.run = std::move(found), .reference = start.model};
  const RunConfig run = with_defaults(start.resumed.run_config);
  if (run.flags.empty() || run.fingerprints.empty())
    log(cat("--resume=", flags.resume.string(),
            ": an older version wrote it; its flags, model, data and task cannot be compared with these"));
  BASCULE_TRY(refuse_unless_allowed(flags, differences(run, found), log));
  found.flags.insert(run.flags.begin(), run.flags.end());
  if (same_model(run.fingerprints, found.fingerprints))
    return ResumableConfig{.run = std::move(found), .reference = start.model};

  if (flags.learn.needs_reference()) BASCULE_TRY(check_first_model(run));
  found.model = run.model;
  std::erase_if(found.fingerprints, [](const auto& entry) { return entry.first.starts_with("model/"); });
  for (const auto& [name, value] : run.fingerprints)
    if (name.starts_with("model/")) found.fingerprints[name] = value;
  return ResumableConfig{.run = std::move(found), .reference = run.model};
}

}  // namespace bascule::ref
