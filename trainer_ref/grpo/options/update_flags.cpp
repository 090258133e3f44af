// The flags of the update: the loss and the optimizer.
#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_FLAG(std::string, loss, "grpo", "grpo, bnpo, dr_grpo or dapo");
ABSL_FLAG(std::string, importance_level, "token",
          "What gets its own probability ratio: token, or sequence, the geometric mean over a completion (GSPO, which "
          "needs a far smaller clip, such as --epsilon-low=3e-4 --epsilon-high=4e-4)");
ABSL_FLAG(double, epsilon_low, 0.2, "The probability ratio is clipped below 1 minus this");
ABSL_FLAG(double, epsilon_high, 0.2, "The probability ratio is clipped above 1 plus this");
ABSL_FLAG(double, beta, 0, "Weight of the divergence from --model");
ABSL_FLAG(bool, measure_kl, false,
          "Measure the divergence even with --beta=0; costs the memory of a second model, except with --lora-rank");
ABSL_FLAG(double, importance_cap, 2,
          "Weight each token by its probability before the step divided by the engine's, at most this; 0: no weights");
ABSL_FLAG(double, off_policy_mask, 0,
          "Mask completions with a negative advantage if their tokens' mean log(engine's probability / policy's) is "
          "more than this, such as 0.5 (OPSM); 0: none");
ABSL_FLAG(int64_t, num_iterations, 1, "Passes over the same completions");
ABSL_FLAG(int64_t, mini_batches, 1, "Parts of a step's completions, each with its own optimizer step, in every pass");
ABSL_FLAG(int64_t, micro_batch, 64, "Most completions that go through the model at a time");
ABSL_FLAG(int64_t, micro_batch_tokens, 16384,
          "Most tokens of these completions and their prompts; a longer completion goes alone. 0: any number");
ABSL_FLAG(double, learning_rate, 1e-6, "Learning rate of AdamW");
ABSL_FLAG(double, weight_decay, 0, "Weight decay of matrices");
ABSL_FLAG(int64_t, warmup_steps, 0, "Optimizer steps over which the learning rate rises");
ABSL_FLAG(std::string, lr_schedule, "auto",
          "The learning rate after --warmup-steps: constant, linear or cosine; auto: linear if --decay-steps is given, "
          "else constant");
ABSL_FLAG(int64_t, decay_steps, 0,
          "The optimizer step at which the learning rate has fallen to --min-learning-rate; 0: the run's last");
ABSL_FLAG(double, min_learning_rate, 0, "The learning rate at the end of its fall");
ABSL_FLAG(double, max_grad_norm, 1, "Gradients are scaled down to this norm; 0: never");
ABSL_FLAG(int64_t, max_bad_steps, 10,
          "A step whose loss or gradients are not finite changes nothing; this many consecutive ones end the run");

namespace bascule::ref {
namespace {

LearningRateSchedule schedule() {
  const std::string name = absl::GetFlag(FLAGS_lr_schedule);
  if (name == "cosine") return LearningRateSchedule::kCosine;
  if (name == "linear" || (name == "auto" && absl::GetFlag(FLAGS_decay_steps) > 0))
    return LearningRateSchedule::kLinear;
  return LearningRateSchedule::kConstant;
}

absl::Status check() {
  const std::int64_t warmup = absl::GetFlag(FLAGS_warmup_steps), decay = absl::GetFlag(FLAGS_decay_steps);
  const double rate = absl::GetFlag(FLAGS_learning_rate);
  FlagChecks checks;
  checks.one_of("loss", absl::GetFlag(FLAGS_loss), {"grpo", "bnpo", "dr_grpo", "dapo"})
      .one_of("importance-level", absl::GetFlag(FLAGS_importance_level), {"token", "sequence"})
      .between("epsilon-low", absl::GetFlag(FLAGS_epsilon_low), 0.0, 1.0)
      .between("epsilon-high", absl::GetFlag(FLAGS_epsilon_high), 0.0, kMostOfANumber, 0.2)
      .between("beta", absl::GetFlag(FLAGS_beta), 0.0, kMostOfANumber, 0.04)
      .between("importance-cap", absl::GetFlag(FLAGS_importance_cap), 0.0, kMostOfANumber, 2.0)
      .between("off-policy-mask", absl::GetFlag(FLAGS_off_policy_mask), 0.0, kMostOfANumber, 0.5)
      .between<std::int64_t>("num-iterations", absl::GetFlag(FLAGS_num_iterations), 1, kMostIterations)
      .between<std::int64_t>("mini-batches", absl::GetFlag(FLAGS_mini_batches), 1, kMostIterations)
      .at_least<std::int64_t>("micro-batch", absl::GetFlag(FLAGS_micro_batch), 1)
      .at_least<std::int64_t>("micro-batch-tokens", absl::GetFlag(FLAGS_micro_batch_tokens), 0)
      .above_zero("learning-rate", rate, 1e-6, kMostOfANumber)
      .between("weight-decay", absl::GetFlag(FLAGS_weight_decay), 0.0, kMostOfANumber, 0.01)
      .at_least<std::int64_t>("warmup-steps", warmup, 0)
      .one_of("lr-schedule", absl::GetFlag(FLAGS_lr_schedule), {"auto", "constant", "linear", "cosine"})
      .that(decay == 0 || decay > warmup, "decay-steps", decay,
            "give 0, or more than --warmup-steps, as --decay-steps=", warmup + 100)
      .that(decay == 0 || absl::GetFlag(FLAGS_lr_schedule) != "constant", "decay-steps", decay,
            "--lr-schedule=constant has no decay; leave one out")
      .between("min-learning-rate", absl::GetFlag(FLAGS_min_learning_rate), 0.0, rate, 1e-7)
      .that(absl::GetFlag(FLAGS_min_learning_rate) == 0 || schedule() != LearningRateSchedule::kConstant,
            "min-learning-rate", absl::GetFlag(FLAGS_min_learning_rate),
            "the learning rate is constant; add --lr-schedule=cosine, or leave it out")
      .between("max-grad-norm", absl::GetFlag(FLAGS_max_grad_norm), 0.0, kMostOfANumber, 1.0)
      .at_least<std::int64_t>("max-bad-steps", absl::GetFlag(FLAGS_max_bad_steps), 1);
  return checks.status();
}

}  // namespace

absl::StatusOr<LearnFlags> parse_learn_flags(const RolloutFlags& rollouts) {
  BASCULE_TRY(check());
  return LearnFlags{
      .update = {.loss = {.kind = *loss_kind_named(absl::GetFlag(FLAGS_loss)),
                          .importance_level = *importance_level_named(absl::GetFlag(FLAGS_importance_level)),
                          .epsilon_low = absl::GetFlag(FLAGS_epsilon_low),
                          .epsilon_high = absl::GetFlag(FLAGS_epsilon_high),
                          .beta = absl::GetFlag(FLAGS_beta),
                          .importance_cap = absl::GetFlag(FLAGS_importance_cap),
                          .off_policy_mask = absl::GetFlag(FLAGS_off_policy_mask),
                          .max_tokens = rollouts.max_tokens},
                 .num_iterations = absl::GetFlag(FLAGS_num_iterations),
                 .mini_batches = absl::GetFlag(FLAGS_mini_batches),
                 .micro_batch = static_cast<std::size_t>(absl::GetFlag(FLAGS_micro_batch)),
                 .micro_batch_tokens = absl::GetFlag(FLAGS_micro_batch_tokens),
                 .temperature = rollouts.temperature,
                 .seed = rollouts.seed},
      .optimizer = {.learning_rate = absl::GetFlag(FLAGS_learning_rate),
                    .min_learning_rate = absl::GetFlag(FLAGS_min_learning_rate),
                    .weight_decay = absl::GetFlag(FLAGS_weight_decay),
                    .schedule = schedule(),
                    .warmup_steps = absl::GetFlag(FLAGS_warmup_steps),
                    .decay_steps = absl::GetFlag(FLAGS_decay_steps),
                    .max_grad_norm = absl::GetFlag(FLAGS_max_grad_norm)},
      .measure_kl = absl::GetFlag(FLAGS_measure_kl),
      .max_bad_steps = absl::GetFlag(FLAGS_max_bad_steps)};
}

}  // namespace bascule::ref
