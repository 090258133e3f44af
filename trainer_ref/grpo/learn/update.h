// One step's update of the policy: mini-batches, micro-batches, inner iterations, statistics.
//
// A step's completions are cut into mini-batches, with one optimizer step for each; each iteration is a pass over all
// mini-batches. A mini-batch goes through the model in micro-batches, whose gradients add up.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include <bascule/trainer_ref/grpo/learn/loss.h>
#include <bascule/trainer_ref/grpo/learn/optimizer.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/run/update_statistics.h>

namespace bascule::ref {

struct UpdateOptions {
  LossOptions loss = {};
  std::int64_t num_iterations = 1;      // passes over the same rollouts
  std::int64_t mini_batches = 1;        // optimizer steps per pass; at most the number of rows
  std::size_t micro_batch = 64;         // most rows that go through the model at a time
  std::int64_t micro_batch_tokens = 0;  // and most tokens of their prompts and completions; 0: any number
  double temperature = 1;               // at which the rollouts were sampled
  std::uint64_t seed = 0;               // of an adapter's dropout

  std::int64_t optimizer_steps() const { return num_iterations * mini_batches; }
};

struct UpdateHooks {
  // Called before each optimizer step, once its gradients are computed; false ends the update without the step.
  std::function<bool()> may_write = [] { return true; };
  // Called after each micro-batch: how many are done, of how many in the whole update.
  std::function<void(std::size_t done, std::size_t of)> after_part = [](std::size_t, std::size_t) {};
};

// Changes the policy's weights. A mini-batch in which all advantages are 0 is skipped if beta is 0: there is nothing to
// learn from it, but AdamW's momentum would still move the weights. `reference` may be null unless loss.beta > 0.
// `rows` must not be empty. `schedule_step` is the place of the update's first optimizer step in the learning-rate
// schedule. Each later step uses the next place, and a skipped step uses up its place. With nullopt, a step's place is
// the number of steps that the optimizer has taken so far, so skipped steps use up none.
UpdateStatistics update_policy(const Policy& policy, const Policy* reference, Optimizer& optimizer,
                               std::span<const TrainingRow> rows, const UpdateOptions& options,
                               std::optional<std::int64_t> schedule_step = std::nullopt, const UpdateHooks& hooks = {});

}  // namespace bascule::ref
