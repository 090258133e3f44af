// The flags of rollouts: how many steps there are, what a step requests from the engines, and how completions are
// rewarded.
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/program/checks.h>

ABSL_FLAG(std::optional<int64_t>, steps, std::nullopt,
          "The number of the last step, which a resumed run counts on to; 60 if neither this nor --epochs is given");
ABSL_FLAG(double, epochs, 0,
          "Instead of --steps: passes over the problems of --data; the last step is this times the number of problems "
          "divided by --prompts-per-step, rounded up");
ABSL_FLAG(int64_t, prompts_per_step, 32, "Problems per step");
ABSL_FLAG(int, group_size, 16, "Completions per problem");
ABSL_FLAG(int64_t, max_tokens, 16, "Longest completion");
ABSL_FLAG(double, temperature, 1, "Temperature at which completions are sampled");
ABSL_FLAG(int64_t, top_k, 0,
          "Completions are sampled from this many of the likeliest tokens; 0: from all. The loss still uses "
          "probabilities among all tokens (docs/guide/data-and-rewards.md)");
ABSL_FLAG(double, top_p, 1,
          "Completions are sampled from the likeliest tokens that together have this probability; see --top-k");
ABSL_FLAG(
    double, min_p, 0,
    "Completions are sampled from the tokens that are at least this many times as likely as the likeliest one; 0: "
    "from all; see --top-k");
ABSL_FLAG(
    std::string, reward, "exact_match",
    "Reward functions with weights, such as exact_match,finished=0.1: exact_match, number_match, math_match (the final "
    "answer: in \\boxed{…}, after ####, or the last number), finished, within_length, exec:PROGRAM ARGUMENT… (reads "
    "JSON lines from stdin and answers on stdout) and http://HOST:PORT/PATH (docs/guide/data-and-rewards.md). A weight "
    "follows the last =; escape a comma, = or blank in a name with a backslash");
ABSL_FLAG(absl::Duration, reward_timeout, absl::Seconds(60),
          "How long a program or server of --reward may take for one batch of at most 1024 completions");
ABSL_FLAG(uint64_t, seed, 0, "Seed of the order of problems and of sampling");
ABSL_FLAG(bool, scale_rewards, true, "Divide advantages by the group's standard deviation");
ABSL_FLAG(int64_t, overlong_buffer, 0,
          "Completions longer than --max-tokens less this lose reward: from nothing there to --overlong-penalty at "
          "--max-tokens (DAPO); 0: no penalty");
ABSL_FLAG(double, overlong_penalty, 1, "With --overlong-buffer: the reward that a completion of --max-tokens loses");
ABSL_FLAG(int64_t, dynamic_sampling, 0,
          "Replace groups whose completions all have the same reward by groups of further problems, in at most this "
          "many rounds (DAPO); 0: never");

namespace bascule::ref {
namespace {

constexpr double kLeastTemperature = 1e-6, kMostTemperature = 100;  // engines sample between these
constexpr std::int64_t kMostRounds = 100;

absl::Status check(const TaskFlags& task, RunKind kind) {
  const int group = absl::GetFlag(FLAGS_group_size);
  const double temperature = absl::GetFlag(FLAGS_temperature);
  const std::int64_t top_k = absl::GetFlag(FLAGS_top_k), max_tokens = absl::GetFlag(FLAGS_max_tokens);
  const double top_p = absl::GetFlag(FLAGS_top_p), min_p = absl::GetFlag(FLAGS_min_p),
               epochs = absl::GetFlag(FLAGS_epochs);
  const std::optional<std::int64_t> steps = absl::GetFlag(FLAGS_steps);
  FlagChecks checks;
  checks.at_least<std::int64_t>("steps", steps.value_or(kDefaultSteps), 1)
      .between("epochs", epochs, 0.0, kMostOfANumber, 2.0)
      .that(epochs == 0 || !steps, "epochs", epochs, "--steps=", steps.value_or(0), " is also given; leave one out")
      .that(epochs == 0 || task.kind == "data", "epochs", epochs,
            "it counts passes over a file; add --task=data and --data, or give --steps")
      .between<std::int64_t>("prompts-per-step", absl::GetFlag(FLAGS_prompts_per_step), 1, kMostProblems)
      .that(kind.supervised || (group >= 2 && group <= kMostCompletions), "group-size", group,
            "each completion is compared with the others of its problem; give a value from 2 to ", kMostCompletions,
            ", as --group-size=16")
      .between<std::int64_t>("max-tokens", max_tokens, 1, kMostTokens)
      .that(temperature >= kLeastTemperature && temperature <= kMostTemperature, "temperature", temperature,
            "give a value from ", kLeastTemperature, " to ", kMostTemperature,
            ", as --temperature=1; completions of a group must differ")
      .that(top_k == 0 || (top_k >= 2 && top_k <= kMostTokens), "top-k", top_k, "give 0, for all tokens, or a value ",
            "from 2 to ", kMostTokens, ", as --top-k=50; completions of a group must differ")
      .that(top_p > 0 && top_p <= 1, "top-p", top_p,
            "give a value above 0, at most 1, as --top-p=0.95; completions of a group must differ")
      .that(min_p >= 0 && min_p < 1, "min-p", min_p,
            "give a value from 0, below 1, as --min-p=0.05; completions of a group must differ")
      .positive_time("reward-timeout", absl::GetFlag(FLAGS_reward_timeout), "60s")
      .between<std::int64_t>("overlong-buffer", absl::GetFlag(FLAGS_overlong_buffer), 0, max_tokens)
      .between("overlong-penalty", absl::GetFlag(FLAGS_overlong_penalty), 0.0, kMostOfANumber, 1.0)
      .between<std::int64_t>("dynamic-sampling", absl::GetFlag(FLAGS_dynamic_sampling), 0, kMostRounds, 4);
  return checks.status();
}

}  // namespace

absl::StatusOr<RolloutFlags> parse_rollout_flags(const TaskFlags& task, RunKind kind) {
  BASCULE_TRY(check(task, kind));
  return RolloutFlags{.steps = absl::GetFlag(FLAGS_steps).value_or(kDefaultSteps),
                      .epochs = absl::GetFlag(FLAGS_epochs),
                      .prompts_per_step = static_cast<std::size_t>(absl::GetFlag(FLAGS_prompts_per_step)),
                      .group_size = absl::GetFlag(FLAGS_group_size),
                      .max_tokens = absl::GetFlag(FLAGS_max_tokens),
                      .temperature = absl::GetFlag(FLAGS_temperature),
                      .top_k = absl::GetFlag(FLAGS_top_k),
                      .top_p = absl::GetFlag(FLAGS_top_p),
                      .min_p = absl::GetFlag(FLAGS_min_p),
                      .seed = absl::GetFlag(FLAGS_seed),
                      .dynamic_sampling = absl::GetFlag(FLAGS_dynamic_sampling)};
}

absl::StatusOr<RewardFlags> parse_reward_flags(std::int64_t max_tokens) {
  RewardFlags flags{.text = absl::GetFlag(FLAGS_reward),
                    .timeout = absl::GetFlag(FLAGS_reward_timeout),
                    .scale = absl::GetFlag(FLAGS_scale_rewards),
                    .overlong = {.max_tokens = max_tokens,
                                 .buffer = absl::GetFlag(FLAGS_overlong_buffer),
                                 .penalty = absl::GetFlag(FLAGS_overlong_penalty)}};
  absl::StatusOr<std::vector<RewardSpec>> specs = parse_rewards(flags.text);
  BASCULE_TRY(of_flag(specs.status(), "reward", flags.text, kRewardAdvice));
  flags.specs = *std::move(specs);
  return flags;
}

}  // namespace bascule::ref
