// AdamW (arXiv 1711.05101) with gradient clipping and linear warm-up, as one kernel over many parameters.
//
// Threads: one. Lifetime: holds the parameters without copying them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

// The course of the learning rate after the warm-up.
enum class LearningRateSchedule { kConstant, kLinear, kCosine };

struct OptimizerOptions {
  double learning_rate = 1e-6;
  double min_learning_rate = 0;  // the rate at the end of its fall
  double weight_decay = 0;       // of matrices; norms and biases are not decayed
  LearningRateSchedule schedule = LearningRateSchedule::kLinear;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // the step at which the fall ends; 0: the rate stays
  double max_grad_norm = 1;      // 0: no clipping
};

// The rate of optimizer step `step`, counted from 0: it rises linearly to learning_rate over `warmup_steps`, then
// stays, falls linearly, or falls as half a period of a cosine (arXiv 1608.03983, eq. 5, without restarts).
double learning_rate_at(const OptimizerOptions& options, std::int64_t step);

class Optimizer {
 public:
  Optimizer(const WeightMap& parameters, const OptimizerOptions& options);

  void zero_grad();  // frees the gradients
  // Clips the gradients to max_grad_norm, over all tensors together, and changes the parameters. Returns the norm
  // before clipping; the gradients are undefined afterwards. If the norm or `loss`, from which the gradients come, is
  // not finite, parameters, moments and steps() do not change. The learning rate is taken at `schedule_step`; nullopt:
  // at steps().
  double step(double loss = 0, std::optional<std::int64_t> schedule_step = std::nullopt);

  // Changes the schedule from the next step.
  void follow(const OptimizerOptions& schedule) { options_ = schedule; }
  double learning_rate() const { return rate_; }  // of the last step

  // The moments of every parameter, as "<name>.exp_avg" and "<name>.exp_avg_sq" (none before the first step), and the
  // number of steps taken. Another Optimizer needs both to continue from here.
  WeightMap moments() const;
  std::int64_t steps() const { return steps_; }
  // Copies the moments to the parameters' device. INVALID_ARGUMENT names the first moment that is missing or has
  // another shape.
  absl::Status restore(const WeightMap& moments, std::int64_t steps);

 private:
  struct Learnt {
    std::string name;
    at::Tensor parameter;
    at::Tensor average = {},
               square = {};  // of gradients; allocated at the start, so that no later step takes more memory
  };
  struct Move {
    double rate, decay;
    double divisor;  // of the gradients, applied first
  };
  void move(bool matrices, const Move& by);

  OptimizerOptions options_;
  std::vector<Learnt> learnt_;
  std::int64_t steps_ = 0;
  double rate_ = 0;
};

}  // namespace bascule::ref
