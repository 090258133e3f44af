// One step's update of the policy: micro-batches, inner iterations, statistics.
#pragma once

#include <span>

#include <bascule/trainer_ref/grpo/loss.h>
#include <bascule/trainer_ref/grpo/optimizer.h>
#include <bascule/trainer_ref/grpo/policy.h>

namespace bascule::ref {

struct UpdateOptions {
  LossOptions loss = {};
  std::int64_t num_iterations = 1;      // optimizer steps over the same rollouts
  std::size_t micro_batch = 64;         // rows that go through the model at a time, at most
  std::int64_t micro_batch_tokens = 0;  // and tokens of these, prompts and completions; 0: any number
  double temperature = 1;               // at which the rollouts were sampled
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
