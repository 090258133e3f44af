// AdamW (arXiv 1711.05101) with gradient clipping and linear warm-up, as one kernel over many parameters.
//
// Threads: one. Lifetime: it holds the parameters, and copies nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

// How the learning rate goes on behind the warm-up.
enum class LearningRateSchedule { kConstant, kLinear, kCosine };

struct OptimizerOptions {
  double learning_rate = 1e-6;
  double min_learning_rate = 0;  // that it falls to
  double weight_decay = 0;       // of matrices; norms and biases are not decayed
  LearningRateSchedule schedule = LearningRateSchedule::kLinear;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // the step at which the fall ends; 0: the rate stays
  double max_grad_norm = 1;      // 0: no clipping
};

// The rate of optimizer step `step`, counted from 0: it climbs linearly, is the full one after `warmup_steps`, and from
// there stays, falls linearly, or as half a period of a cosine (arXiv 1608.03983, eq. 5, without restarts).
double learning_rate_at(const OptimizerOptions& options, std::int64_t step);

class Optimizer {
 public:
  Optimizer(const WeightMap& parameters, const OptimizerOptions& options);

  void zero_grad();  // frees the gradients
  // Clips the gradients to max_grad_norm, all tensors together, and changes the parameters. Returns the norm
  // before clipping; the gradients are undefined afterwards. Where that or `loss`, whose gradients they are, is not
  // finite, nothing changes: parameters, moments and steps() stay as they are. The learning rate is that of
  // `schedule_step`; nullopt: of steps().
  double step(double loss = 0, std::optional<std::int64_t> schedule_step = std::nullopt);

  // From the next step on, another schedule.
  void follow(const OptimizerOptions& schedule) { options_ = schedule; }
  double learning_rate() const { return rate_; }  // of the last step

  // The moments of every parameter, as "<name>.exp_avg" and "<name>.exp_avg_sq" (none before the first step), and the
  // number of steps taken: what another Optimizer needs to continue as this one would have.
  WeightMap moments() const;
  std::int64_t steps() const { return steps_; }
  // Takes copies, on the parameters' device. INVALID_ARGUMENT names the first moment that is missing or of another
  // shape.
  absl::Status restore(const WeightMap& moments, std::int64_t steps);

 private:
  struct Learnt {
    std::string name;
    at::Tensor parameter;
    at::Tensor average = {}, square = {};  // of gradients; from the start, so that no later step takes more memory
  };
  struct Move {
    double rate, decay;
    double divisor;  // of the gradients, before all else
  };
  void move(bool matrices, const Move& by);

  OptimizerOptions options_;
  std::vector<Learnt> learnt_;
  std::int64_t steps_ = 0;
  double rate_ = 0;
};

}  // namespace bascule::ref
