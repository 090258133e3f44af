// One step's update of the policy: micro-batches, inner iterations, statistics.
#pragma once

#include <functional>
#include <span>

#include <bascule/trainer_ref/grpo/loss.h>
#include <bascule/trainer_ref/grpo/optimizer.h>
#include <bascule/trainer_ref/grpo/policy.h>

namespace bascule::ref {

struct UpdateOptions {
  LossOptions loss = {};
  std::int64_t num_iterations = 1;  // optimizer steps over the same rollouts
  std::size_t micro_batch = 64;     // rows that go through the model at a time
  double temperature = 1;           // at which the rollouts were sampled
  // Asked before each optimizer step, when its gradients are there; false: the update ends without it.
  std::function<bool()> may_write = [] { return true; };
};

// Means over the inner iterations that changed the weights; NaN where none did.
struct UpdateStatistics {
  double loss = 0;
  double kl = 0;             // per token, from the reference; NaN without one
  double clip_fraction = 0;  // of tokens
  double grad_norm = 0;      // before clipping
  std::int64_t skipped = 0;  // iterations whose loss or gradient was not finite: they changed nothing
};

// Changes the policy's weights. `reference` may be null unless loss.beta > 0. `rows` must not be empty.
UpdateStatistics update_policy(const Policy& policy, const Policy* reference, Optimizer& optimizer,
                               std::span<const TrainingRow> rows, const UpdateOptions& options);

}  // namespace bascule::ref
