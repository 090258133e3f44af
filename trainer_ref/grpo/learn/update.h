// One step's update of the policy: mini-batches, micro-batches, inner iterations, statistics.
//
// A step's completions are cut into mini-batches; an optimizer step is taken for each, in as many passes over all of
// them as there are iterations. A mini-batch goes through the model in micro-batches, whose gradients add up.
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
  std::int64_t mini_batches = 1;        // optimizer steps of a pass; no more than there are rows
  std::size_t micro_batch = 64;         // rows that go through the model at a time, at most
  std::int64_t micro_batch_tokens = 0;  // and tokens of these, prompts and completions; 0: any number
  double temperature = 1;               // at which the rollouts were sampled

  std::int64_t optimizer_steps() const { return num_iterations * mini_batches; }
};

struct UpdateHooks {
  // Asked before each optimizer step, when its gradients are there; false: the update ends without it.
  std::function<bool()> may_write = [] { return true; };
  // Told after each micro-batch, of how many of the whole update.
  std::function<void(std::size_t done, std::size_t of)> after_part = [](std::size_t, std::size_t) {};
};

// Changes the policy's weights. A mini-batch without any advantage and without beta changes nothing: there is nothing
// to learn from it, and AdamW would go on by its momentum. `reference` may be null unless loss.beta > 0. `rows` must
// not be empty. `schedule_step`: the place in the learning rate's schedule of the update's first optimizer step; the
// others follow, taken or not. nullopt: behind those that the optimizer has taken.
UpdateStatistics update_policy(const Policy& policy, const Policy* reference, Optimizer& optimizer,
                               std::span<const TrainingRow> rows, const UpdateOptions& options,
                               std::optional<std::int64_t> schedule_step = std::nullopt, const UpdateHooks& hooks = {});

}  // namespace bascule::ref
