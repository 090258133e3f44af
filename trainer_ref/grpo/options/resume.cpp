#include <bascule/trainer_ref/grpo/options/resume.h>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// Not among them: where things lie and how long they may take, --steps and --epochs, what is only measured, and
// --micro-batch and its kin, which a run that found too little memory must be able to change.
constexpr const char* kFlags[] = {"task",
                                  "operands",
                                  "prompt_column",
                                  "answer_column",
                                  "sync_every",
                                  "max_staleness",
                                  "max_tokens",
                                  "group_size",
                                  "temperature",
                                  "reward",
                                  "scale_rewards",
                                  "prompts_per_step",
                                  "loss",
                                  "epsilon_low",
                                  "epsilon_high",
                                  "beta",
                                  "seed",
                                  "importance_cap",
                                  "learning_rate",
                                  "num_iterations",
                                  "weight_decay",
                                  "warmup_steps",
                                  "decay_steps",
                                  "lr_schedule",
                                  "min_learning_rate",
                                  "importance_level",
                                  "off_policy_mask",
                                  "mini_batches",
                                  "overlong_buffer",
                                  "overlong_penalty",
                                  "dynamic_sampling",
                                  "max_grad_norm",
                                  "top_k",
                                  "top_p",
                                  "chat",
                                  "system_prompt",
                                  "chat_template_kwargs",
                                  "engine_dtype"};

constexpr std::string_view kKeptTask = "kept-task";  // the problems that --drop-long left

absl::StatusOr<RunConfig> run_config_now(const TrainOptions& options, const Task& task) {
  std::error_code ignored;
  RunConfig run_config{.flags = flags_that_matter(), .model = fs::weakly_canonical(options.model, ignored)};
  BASCULE_ASSIGN(run_config.fingerprints, fingerprints_of_model(options.model));
  if (!options.data.empty()) {
    BASCULE_ASSIGN(run_config.fingerprints["data"], fingerprint_of_file(options.data));
  }
  if (!options.eval_data.empty()) {
    BASCULE_ASSIGN(run_config.fingerprints["eval-data"], fingerprint_of_file(options.eval_data));
  }
  if (needs_template(options.chat, task)) {
    BASCULE_ASSIGN(run_config.fingerprints["chat-template"], fingerprint_of_chat_template(options.model));
  }
  for (const RewardSpec& reward : options.rewards)
    for (const std::string& word : reward.command)  // a program that PATH finds is none of the run's own
      if (fs::is_regular_file(word, ignored)) {
        BASCULE_ASSIGN(run_config.fingerprints[cat("reward/", word)], fingerprint_of_file(word));
      }
  // Engines that get bf16 sample other completions, whichever flag says so.
  if (absl::StrContains(options.sync, "wire_dtype=bf16")) run_config.flags["engine-dtype"] = "bf16";
  run_config.flags["train-dtype"] = options.compute.dtype == at::kFloat ? "f32" : "bf16";  // what auto came to
  run_config.fingerprints["task"] = fingerprint_of(task);
  return run_config;
}

// The run's first model, where --model names another one.
absl::Status check_first_model(const RunConfig& run) {
  const absl::StatusOr<Fingerprints> there = fingerprints_of_model(run.model);
  if (there.ok() && same_model(run.fingerprints, *there)) return absl::OkStatus();
  return invalid_argument("--model: the divergence is measured from the model that the run began with, ",
                          run.model.string(), ", which is ", there.ok() ? "no longer the same" : "gone",
                          "; give a folder that holds it, as --model=FOLDER");
}

}  // namespace

std::map<std::string, std::string> flags_that_matter() {
  std::map<std::string, std::string> flags;
  for (const char* name : kFlags)
    if (const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name); flag != nullptr)
      flags[absl::StrReplaceAll(name, {{"_", "-"}})] = flag->CurrentValue();
  return flags;
}

namespace {

// A run of an older version had the defaults of what that version did not know.
RunConfig with_defaults(RunConfig run) {
  if (run.flags.empty()) return run;
  for (const char* name : kFlags)
    if (const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name); flag != nullptr)
      run.flags.try_emplace(absl::StrReplaceAll(name, {{"_", "-"}}), flag->DefaultValue());
  return run;
}

absl::Status settle(const TrainOptions& options, const std::vector<std::string>& different,
                    const std::function<void(std::string_view)>& log) {
  const std::string resume = cat("--resume=", options.resume.string(), ": ");
  if (!different.empty() && !options.allow_changes)
    return invalid_argument(resume, absl::StrJoin(different, "; "),
                            "; give what the run had, or go on with these by --allow-changes");
  for (const std::string& each : different) log(cat(resume, each, "; going on, by --allow-changes"));
  return absl::OkStatus();
}

}  // namespace

absl::Status resolve_kept_task(TrainOptions& options, const Task& task,
                               const std::function<void(std::string_view)>& log) {
  if (!options.drop_long) return absl::OkStatus();
  const std::string key(kKeptTask), found = fingerprint_of(task);
  options.run_config.fingerprints[key] = found;
  const Fingerprints& run = options.resumed.run_config.fingerprints;
  const auto before = run.find(key);
  if (options.resume.empty() || before == run.end() || before->second == found) return absl::OkStatus();
  return settle(options,
                {"--drop-long: the run was trained on other problems; its engines took prompts of another length "
                 "(--max-model-len)"},
                log);
}

absl::Status resolve_run_config(TrainOptions& options, const Task& task,
                                const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(options.run_config, run_config_now(options, task));
  options.reference = options.model;
  if (options.resume.empty()) return absl::OkStatus();
  const RunConfig run = with_defaults(options.resumed.run_config);
  if (run.flags.empty() || run.fingerprints.empty())
    log(cat("--resume=", options.resume.string(),
            ": an older version wrote it; its flags, model, data and task cannot be compared with these"));
  BASCULE_TRY(settle(options, differences(run, options.run_config), log));
  if (same_model(run.fingerprints, options.run_config.fingerprints)) return absl::OkStatus();

  if (options.needs_reference()) BASCULE_TRY(check_first_model(run));
  options.reference = options.run_config.model = run.model;
  std::erase_if(options.run_config.fingerprints, [](const auto& entry) { return entry.first.starts_with("model/"); });
  for (const auto& [name, value] : run.fingerprints)
    if (name.starts_with("model/")) options.run_config.fingerprints[name] = value;
  return absl::OkStatus();
}

}  // namespace bascule::ref
