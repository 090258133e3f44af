// The flags of an adapter: --lora-*, --adapter.
#include <algorithm>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_FLAG(
    int64_t, lora_rank, 0,
    "Train a LoRA adapter of this rank, such as 16, and leave the model as it is: it is held in the type of "
    "--train-dtype without gradients, and AdamW knows the adapter alone. Checkpoints adapter_step_N are folders of "
    "PEFT. 0: train all weights");
ABSL_FLAG(double, lora_alpha, 0,
          "The adapter's update is scaled by this divided by the rank (--lora-rslora: by its root); 0: twice the rank");
ABSL_FLAG(bool, lora_rslora, false, "Scale the adapter by --lora-alpha divided by the root of the rank (rsLoRA)");
ABSL_FLAG(std::string, lora_targets, "all-linear",
          "The modules that get an adapter: all-linear, which are the linear modules of every layer but not the head; "
          "or names "
          "separated by commas, as q_proj,v_proj; or one regular expression of whole names, as "
          "'.*layers\\.[0-9]\\..*_proj'");
ABSL_FLAG(double, lora_dropout, 0, "The share of an adapter's input that is left out in training");
ABSL_FLAG(std::string, adapter, "",
          "Start from the adapter in this folder of PEFT, over --model, instead of a new one; its config has what "
          "--lora-rank and the like would set");
ABSL_FLAG(
    std::string, lora_sync, "adapters",
    "What is sent to engines: adapters (the adapter alone, to engines that serve --model and load adapters) or merged "
    "(the whole model with the adapter added, to engines that know nothing of adapters)");
ABSL_FLAG(std::string, lora_name, "policy",
          "With --lora-sync=adapters: the name under which engines serve the adapter, which requests to them give");

ABSL_FLAG(
    std::string, lora_base, "",
    "The endpoint of a base, as shm:///run/user/1000/grpo/base, or cuda-ipc:///… on a GPU: the frozen weights lie "
    "there in one copy of memory, which this program, engines that it starts, and others with --base map. The "
    "first process reads --model, and the base lives until the last one has ended");

namespace bascule::ref {
namespace {

bool names_no_expression(const std::string& targets) {
  return std::ranges::all_of(targets, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == ',' || c == ' ';
  });
}

NewLora new_lora_of_flags() {
  const std::string targets = absl::GetFlag(FLAGS_lora_targets);
  NewLora lora{.rank = absl::GetFlag(FLAGS_lora_rank),
               .alpha = absl::GetFlag(FLAGS_lora_alpha),
               .use_rslora = absl::GetFlag(FLAGS_lora_rslora),
               .dropout = absl::GetFlag(FLAGS_lora_dropout)};
  if (lora.alpha == 0) lora.alpha = 2 * static_cast<double>(lora.rank);
  lora.targets = {targets};
  if (names_no_expression(targets)) {
    lora.targets = absl::StrSplit(targets, ',', absl::SkipWhitespace());
    for (std::string& target : lora.targets) absl::StripAsciiWhitespace(&target);
  }
  return lora;
}

// The engine of --bridge-config says what it takes, which another run would learn only after --engine-timeout.
absl::Status check_bridge(const std::string& takes, const std::string& sent) {
  if (takes == sent) return absl::OkStatus();
  const auto named = [](const std::string& name) {
    return name.empty() ? "whole models" : cat("the adapter \"", name, "\"");
  };
  return invalid_argument("--bridge-config: expected an engine that takes ", named(sent), ", found one that takes ",
                          named(takes), "; ",
                          takes.empty() ? "leave out --lora-rank, or give --lora-sync=merged"
                                        : cat("give --lora-rank=16 with --lora-name=", takes),
                          ", or start another engine");
}

}  // namespace

absl::StatusOr<LoraFlags> parse_lora_flags(const std::filesystem::path& resume, const EngineFlags& engines) {
  constexpr std::int64_t kMostRank = 512;  // of a product in a send (kernels/arithmetic.h), and of engines
  const std::int64_t rank = absl::GetFlag(FLAGS_lora_rank);
  const std::string adapter = absl::GetFlag(FLAGS_adapter), sync = absl::GetFlag(FLAGS_lora_sync);
  const bool resumes = !resume.empty() && is_adapter_folder(resume), on = rank > 0 || !adapter.empty() || resumes;
  const std::string none = "it is for training an adapter; add --lora-rank=16, or leave it out";
  const std::string of_folder =
      cat("the adapter of ", resumes ? "--resume" : "--adapter", " keeps what its config ", "says; leave it out");
  const std::string& why = adapter.empty() && !resumes ? none : of_folder;
  const auto may_shape = [&](bool is_default) { return is_default || (rank > 0 && adapter.empty()); };
  FlagChecks checks;
  checks.between<std::int64_t>("lora-rank", rank, 0, kMostRank, 16)
      .between("lora-alpha", absl::GetFlag(FLAGS_lora_alpha), 0.0, kMostOfANumber, 32.0)
      .that(absl::GetFlag(FLAGS_lora_dropout) >= 0 && absl::GetFlag(FLAGS_lora_dropout) < 1, "lora-dropout",
            absl::GetFlag(FLAGS_lora_dropout), "expected a share from 0 to below 1, as --lora-dropout=0.05")
      .one_of("lora-sync", sync, {"adapters", "merged"})
      .that(rank == 0 || adapter.empty(), "lora-rank", rank, of_folder)
      .that(resume.empty() || adapter.empty(), "adapter", adapter,
            "a resumed run continues the adapter of its checkpoint; leave it out")
      .that(may_shape(absl::GetFlag(FLAGS_lora_alpha) == 0), "lora-alpha", absl::GetFlag(FLAGS_lora_alpha), why)
      .that(may_shape(!absl::GetFlag(FLAGS_lora_rslora)), "lora-rslora", true, why)
      .that(may_shape(absl::GetFlag(FLAGS_lora_targets) == "all-linear"), "lora-targets",
            absl::GetFlag(FLAGS_lora_targets), why)
      .that(may_shape(absl::GetFlag(FLAGS_lora_dropout) == 0), "lora-dropout", absl::GetFlag(FLAGS_lora_dropout), why)
      .that(on || sync == "adapters", "lora-sync", sync, none)
      .that(
          !on || !is_single_copy(engines.sync), "sync", engines.sync,
          "with slots=1 engines read the trainer's own tensors, but what an adapter adds is computed while it is sent; "
          "give slots=2")
      .that(!engines.own || sync == "adapters", "lora-sync", sync,
            "with --engines=none this process generates with the adapter as it is; leave it out")
      .that(!engines.own || absl::GetFlag(FLAGS_lora_base).empty(), "lora-base", absl::GetFlag(FLAGS_lora_base),
            "with --engines=none no other process needs the weights; leave it out")
      .that(!engines.restarts || sync == "adapters", "lora-sync", sync,
            "with --sync=none the engines are restarted with the adapter's folder; leave it out")
      .that(on || absl::GetFlag(FLAGS_lora_base).empty(), "lora-base", absl::GetFlag(FLAGS_lora_base), none)
      .not_empty("lora-name", absl::GetFlag(FLAGS_lora_name), "a name", "policy");
  if (!checks.status().ok()) return checks.status();
  if (!adapter.empty())
    BASCULE_TRY(
        of_flag(check_adapter_folder(adapter), "adapter", adapter, "give one, as --adapter=out/run/adapter_step_60"));
  LoraFlags flags{.on = on,
                  .fresh = new_lora_of_flags(),
                  .adapter = resumes ? resume : std::filesystem::path(adapter),
                  .sync = sync == "merged" ? LoraSync::kMerged : LoraSync::kAdapters,
                  .name = absl::GetFlag(FLAGS_lora_name),
                  .base = absl::GetFlag(FLAGS_lora_base)};
  if (engines.adapter)
    BASCULE_TRY(check_bridge(*engines.adapter, on && flags.sync == LoraSync::kAdapters ? flags.name : ""));
  return flags;
}

}  // namespace bascule::ref
