#include <bascule/trainer_ref/grpo/options/parse_train_flags.h>

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

// What is trained
ABSL_FLAG(std::string, model, "",
          "Folder of the checkpoint to start from; also the reference of the divergence. Optional with --resume");
ABSL_FLAG(std::string, out, "",
          "Folder for metrics.jsonl, report.html and the checkpoints step_N (adapter_step_N with --lora-rank)");
ABSL_FLAG(std::string, resume, "", "A folder step_N or adapter_step_N of an earlier run, to continue after that step");
ABSL_FLAG(bool, dry_run, false,
          "Print the memory that the run would take on --device, by part, and what is free there, and end; fails if it "
          "does not fit. Needs no engines");
ABSL_FLAG(
    bool, allow_changes, false,
    "With --resume: continue although flags, model, data or problems differ from the run's; logs each difference");
ABSL_FLAG(std::string, task, "arithmetic",
          "The problems: arithmetic (sums, whose digits are written in reverse order: 45+33= gives 87), or data (from "
          "--data)");
ABSL_FLAG(std::string, data, "",
          "With --task=data: a file of JSON lines {\"prompt\": …, \"answer\": …, …}. Instead of a prompt's text a line "
          "may have \"messages\", from which the model's chat template writes the prompt, or \"prompt_token_ids\"; "
          "GSM8K's \"question\" and \"answer\" are read as they are (docs/guide/data-and-rewards.md)");
ABSL_FLAG(
    std::string, eval_data, "",
    "With --task=data: a file like --data with the problems for evaluation. Without it, one in ten problems of --data "
    "is held out");
ABSL_FLAG(std::string, prompt_column, "prompt",
          "The column of --data that holds the prompt: text, a list of messages or a list of token ids");
ABSL_FLAG(std::string, answer_column, "answer",
          "The column of --data that holds the expected answer; empty: none, for rewards that need no answer");
ABSL_FLAG(int, operands, 50, "With --task=arithmetic: the numbers to add are below this, which is 2 to 50");
ABSL_FLAG(bool, supervised, false,
          "Train on the answers themselves, with their rationales if the data has them (a column rationale; GSM8K), "
          "without engines, and write a bf16 checkpoint to --out. A --model folder without weights starts from random "
          "ones");
ABSL_FLAG(double, label_noise, 0,
          "With --supervised: the share of the answers' digits that are replaced by random ones");

ABSL_FLAG(std::string, merge, "",
          "Instead of training, write to --out a checkpoint of --model with the adapter in this folder of PEFT added");
ABSL_FLAG(std::string, merge_dtype, "bf16", "Type of the weights that --merge writes: bf16 or f32");

// The run
ABSL_FLAG(int64_t, eval_every, 10, "Steps between evaluations; 0: only before the first step and after the last");
ABSL_FLAG(int64_t, eval_problems, 128, "Held-out problems per evaluation");
ABSL_FLAG(int, eval_samples, 1, "Completions per held-out problem, always at temperature 1 and from all tokens");
ABSL_FLAG(int64_t, show, 4, "Problems whose completions are printed at each evaluation");
ABSL_FLAG(int64_t, save_every, 0, "Steps between checkpoints; 0: only after the last step");
ABSL_FLAG(
    std::string, metrics, "",
    "HOST:PORT of the run's HTTP pages: /metrics for Prometheus, /health; with port 0 the system chooses the port, and "
    "the log has it (docs/guide/pair.md)");
ABSL_FLAG(std::string, about, "", "A sentence or two about the run, for its report");

namespace bascule::ref {
namespace {

absl::Status check_run() {
  const bool supervised = absl::GetFlag(FLAGS_supervised), dry = absl::GetFlag(FLAGS_dry_run);
  const std::string task = absl::GetFlag(FLAGS_task), data = absl::GetFlag(FLAGS_data);
  FlagChecks checks;
  checks
      .that(!absl::GetFlag(FLAGS_model).empty() || !absl::GetFlag(FLAGS_resume).empty(), "model", "",
            "give the folder of a checkpoint, as --model=trainer_ref/demo")
      .that(!absl::GetFlag(FLAGS_allow_changes) || !absl::GetFlag(FLAGS_resume).empty(), "allow-changes", true,
            "it is for resumed runs; add --resume, or leave it out")
      .that(dry || !absl::GetFlag(FLAGS_out).empty(), "out", "", "give a folder for the results, as --out=out/run")
      .one_of("task", task, {"arithmetic", "data"})
      .between("operands", absl::GetFlag(FLAGS_operands), 2, 50)
      .that(task != "data" || !data.empty(), "data", data,
            "--task=data needs a file of JSON lines, as --data=problems.jsonl")
      .that(task == "data" || data.empty(), "data", data, "add --task=data to train on this file")
      .that(task == "data" || absl::GetFlag(FLAGS_eval_data).empty(), "eval-data", absl::GetFlag(FLAGS_eval_data),
            "add --task=data and --data: the arithmetic has its own held-out problems")
      .not_empty("prompt-column", absl::GetFlag(FLAGS_prompt_column), "the name of a column", "prompt")
      .between("label-noise", absl::GetFlag(FLAGS_label_noise), 0.0, 1.0)
      .that(!supervised || absl::GetFlag(FLAGS_resume).empty(), "resume", absl::GetFlag(FLAGS_resume),
            "a supervised run cannot be resumed; leave it out")
      .at_least<std::int64_t>("eval-every", absl::GetFlag(FLAGS_eval_every), 0)
      .at_least<std::int64_t>("eval-problems", absl::GetFlag(FLAGS_eval_problems), 1)
      .between("eval-samples", absl::GetFlag(FLAGS_eval_samples), 1, kMostCompletions)
      .at_least<std::int64_t>("show", absl::GetFlag(FLAGS_show), 0)
      .at_least<std::int64_t>("save-every", absl::GetFlag(FLAGS_save_every), 0);
  // Flags that only GRPO has.
  for (const char* name : {"metrics", "save_every", "reward", "loss", "beta", "mini_batches", "num_iterations",
                           "dynamic_sampling", "overlong_buffer", "off_policy_mask"})
    if (const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name); supervised && flag != nullptr)
      checks.that(flag->CurrentValue() == flag->DefaultValue(), absl::StrReplaceAll(name, {{"_", "-"}}),
                  flag->CurrentValue(), "it has no meaning with --supervised; leave it out");
  return checks.status();
}

// The trainer and the engines that it starts map the same tensors.
absl::Status check_base(const TrainFlags& flags) {
  const SpawnFlags& spawn = flags.engines.spawn;
  const std::string own = flags.frozen_dtype() == DType::kF32 ? "f32" : "bf16";
  FlagChecks checks;
  checks
      .that(spawn.engines == 0 || flags.lora.sync == LoraSync::kAdapters, "lora-base", flags.lora.base,
            "with --lora-sync=merged the engines get whole models; give --lora-sync=adapters, or leave it out")
      .that(spawn.engines == 0 || spawn.dtype == own, "engine-dtype", spawn.dtype,
            "with --lora-base the engines read this program's frozen weights, which are ", own,
            " by --train-dtype; give --engine-dtype=", own);
  return checks.status();
}

std::vector<std::pair<std::string, std::string>> flags_given() {
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& [name, flag] : absl::GetAllFlags())
    if (flag->CurrentValue() != flag->DefaultValue() && name != "about")
      given.emplace_back(absl::StrReplaceAll(name, {{"_", "-"}}), flag->CurrentValue());
  std::sort(given.begin(), given.end());
  return given;
}

}  // namespace

absl::StatusOr<std::optional<MergeFlags>> parse_merge_flags() {
  MergeFlags flags{.adapter = absl::GetFlag(FLAGS_merge),
                   .model = absl::GetFlag(FLAGS_model),
                   .out = absl::GetFlag(FLAGS_out),
                   .dtype = absl::GetFlag(FLAGS_merge_dtype) == "f32" ? DType::kF32 : DType::kBF16};
  if (flags.adapter.empty()) return std::nullopt;
  FlagChecks checks;
  checks.one_of("merge-dtype", absl::GetFlag(FLAGS_merge_dtype), {"bf16", "f32"})
      .that(!flags.model.empty(), "model", "", "give the adapter's base model, as --model=trainer_ref/demo")
      .that(!flags.out.empty(), "out", "", "give a folder for the checkpoint, as --out=out/merged")
      .that(!absl::GetFlag(FLAGS_supervised), "supervised", true, "--merge does not train; leave one of the two out")
      .that(absl::GetFlag(FLAGS_resume).empty(), "resume", absl::GetFlag(FLAGS_resume),
            "--merge does not train; leave one of the two out");
  if (!checks.status().ok()) return checks.status();
  return flags;
}

absl::StatusOr<TrainFlags> parse_train_flags(const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(SpawnFlags spawn, spawn_flags());
  BASCULE_TRY(check_run());
  TrainFlags flags{
      .model = absl::GetFlag(FLAGS_model),
      .out = absl::GetFlag(FLAGS_out),
      .resume = absl::GetFlag(FLAGS_resume),
      .allow_changes = absl::GetFlag(FLAGS_allow_changes),
      .supervised = absl::GetFlag(FLAGS_supervised),
      .dry_run = absl::GetFlag(FLAGS_dry_run),
      .task = {.kind = absl::GetFlag(FLAGS_task),
               .data = absl::GetFlag(FLAGS_data),
               .eval_data = absl::GetFlag(FLAGS_eval_data),
               .columns = {.prompt = absl::GetFlag(FLAGS_prompt_column), .answer = absl::GetFlag(FLAGS_answer_column)},
               .operands = absl::GetFlag(FLAGS_operands)},
      .report = {.eval_every = absl::GetFlag(FLAGS_eval_every),
                 .save_every = absl::GetFlag(FLAGS_save_every),
                 .eval_problems = static_cast<std::size_t>(absl::GetFlag(FLAGS_eval_problems)),
                 .eval_samples = absl::GetFlag(FLAGS_eval_samples),
                 .show = static_cast<std::size_t>(absl::GetFlag(FLAGS_show)),
                 .metrics = absl::GetFlag(FLAGS_metrics),
                 .about = absl::GetFlag(FLAGS_about)},
      .given = flags_given()};
  const RunKind kind{.supervised = flags.supervised, .dry_run = flags.dry_run};
  BASCULE_ASSIGN(flags.engines, parse_engine_flags(std::move(spawn), kind));
  BASCULE_ASSIGN(flags.atropos, parse_atropos_flags(flags.engines));
  if (flags.atropos.on()) flags.task.kind = "atropos";
  BASCULE_ASSIGN(flags.task.chat, parse_chat_flags());
  BASCULE_ASSIGN(flags.rollouts, parse_rollout_flags(flags.task, kind));
  BASCULE_ASSIGN(flags.reward, parse_reward_flags(flags.rollouts.max_tokens));
  if (flags.atropos.on()) flags.reward.specs.clear();  // environments score
  BASCULE_ASSIGN(flags.learn, parse_learn_flags(flags.rollouts));
  flags.learn.label_noise = absl::GetFlag(FLAGS_label_noise);
  BASCULE_ASSIGN(flags.lora, parse_lora_flags(flags.resume, flags.engines));
  BASCULE_ASSIGN(flags.compute, parse_compute_flags(flags.engines, kind, log));
  if (!flags.lora.base.empty()) BASCULE_TRY(check_base(flags));
  return flags;
}

}  // namespace bascule::ref
