// The flags of rollouts by environments of Atropos.
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_replace.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(std::string, rollouts, "engines",
          "Where completions come from: engines (this program asks them, for the problems of --task), or "
          "atropos:http://HOST:PORT, an API server of Atropos, whose environments sample with the engines and score; "
          "--prompts-per-step times --group-size sequences make a batch, and --max-tokens bounds a whole sequence "
          "(docs/guide/atropos.md)");
ABSL_FLAG(absl::Duration, batch_timeout, absl::Minutes(10),
          "With --rollouts=atropos:…: how long a step may wait for its batch");

namespace bascule::ref {
namespace {

constexpr std::string_view kAtropos = "atropos:";

// Flags of what environments do instead.
constexpr const char* kOfOwnProblems[] = {
    "task",      "data",     "eval_data",  "reward",           "epochs",          "chat",         "system_prompt",
    "drop_long", "colocate", "supervised", "dynamic_sampling", "overlong_buffer", "max_staleness"};

}  // namespace

absl::StatusOr<AtroposFlags> parse_atropos_flags(const EngineFlags& engines) {
  const std::string from = absl::GetFlag(FLAGS_rollouts);
  AtroposFlags flags{.batch_timeout = absl::GetFlag(FLAGS_batch_timeout)};
  FlagChecks checks;
  checks.positive_time("batch-timeout", flags.batch_timeout, "10m");
  if (from != "engines") {
    constexpr const char* kAdvice =
        "give engines, or an API server of Atropos, as --rollouts=atropos:http://127.0.0.1:8000";
    checks.that(from.starts_with(kAtropos), "rollouts", from, kAdvice);
    flags.url = from.substr(from.starts_with(kAtropos) ? kAtropos.size() : 0);
    while (flags.url.ends_with('/')) flags.url.pop_back();
    if (const absl::Status url = check_url(flags.url); !url.ok())
      checks.that(false, "rollouts", from, url.message(), "; ", kAdvice);
    checks.that(
        !engines.own, "engines", "none",
        "environments of Atropos sample from an engine by its URL; give --spawn-engines=1, or the engine's URL");
    for (const char* const name : kOfOwnProblems)
      if (const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name); flag != nullptr)
        checks.that(flag->CurrentValue() == flag->DefaultValue(), absl::StrReplaceAll(name, {{"_", "-"}}),
                    flag->CurrentValue(),
                    "with --rollouts=atropos:… the environments choose the problems, sample by "
                    "themselves and score; leave it out");
  }
  if (!checks.status().ok()) return checks.status();
  return flags;
}

}  // namespace bascule::ref
