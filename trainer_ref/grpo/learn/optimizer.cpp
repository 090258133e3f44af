#include <bascule/trainer_ref/grpo/learn/optimizer.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

}  // namespace

double learning_rate_at(const OptimizerOptions& options, std::int64_t step) {
  const double peak = options.learning_rate;
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (step < options.warmup_steps) return peak * share(step + 1, options.warmup_steps);
  if (options.schedule == LearningRateSchedule::kConstant || options.decay_steps <= options.warmup_steps) return peak;
  const std::int64_t left = std::max<std::int64_t>(0, options.decay_steps - step);
  double height = share(left, options.decay_steps - options.warmup_steps);  // 1 at the top, 0 at the end
  if (options.schedule == LearningRateSchedule::kCosine) height = (1 - std::cos(std::numbers::pi * height)) / 2;
  return options.min_learning_rate + (peak - options.min_learning_rate) * height;
}

Optimizer::Optimizer(const WeightMap& parameters, const OptimizerOptions& options) : options_(options) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters)
    learnt_.push_back({.name = name,
                       .parameter = tensor,
                       .average = at::zeros_like(tensor, at::MemoryFormat::Contiguous),
                       .square = at::zeros_like(tensor, at::MemoryFormat::Contiguous)});
}

void Optimizer::zero_grad() {
  for (const Learnt& learnt : learnt_) learnt.parameter.mutable_grad() = at::Tensor();
}

double Optimizer::step(double loss, std::optional<std::int64_t> schedule_step) {
  std::vector<at::Tensor> gradients;
  for (const Learnt& learnt : learnt_)
    if (learnt.parameter.grad().defined()) gradients.push_back(learnt.parameter.grad());
  if (gradients.empty()) return 0;
  // Reads one number from the device instead of one per parameter: each read waits for all queued work.
  const double norm = at::stack(at::_foreach_norm(gradients, 2)).to(at::kDouble).norm().item<double>();
  if (!std::isfinite(norm) || !std::isfinite(loss)) return norm;
  const bool clips = options_.max_grad_norm > 0 && norm > options_.max_grad_norm;
  const double divisor = clips ? norm / options_.max_grad_norm : 1;
  rate_ = learning_rate_at(options_, schedule_step.value_or(steps_));
  ++steps_;  // counted first, since a step that fails half-way has changed parameters
  for (const bool matrices : {true, false})
    move(matrices, {.rate = rate_, .decay = matrices ? options_.weight_decay : 0, .divisor = divisor});
  return norm;
}

void Optimizer::move(bool matrices, const Move& by) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters, gradients, averages, squares;
  for (Learnt& learnt : learnt_) {
    if ((learnt.parameter.dim() > 1) != matrices || !learnt.parameter.grad().defined()) continue;
    parameters.push_back(learnt.parameter);
    gradients.push_back(learnt.parameter.grad());
    averages.push_back(learnt.average);
    squares.push_back(learnt.square);
  }
  if (parameters.empty()) return;
  // The kernel reads them on the parameters' device.
  const auto number = [&](double value) {
    return at::full({}, value, at::TensorOptions(parameters[0].device()).dtype(at::kFloat));
  };
  const std::vector<at::Tensor> steps(parameters.size(), number(static_cast<double>(steps_)));
  at::_fused_adamw_(parameters, gradients, averages, squares, /*max_exp_avg_sqs=*/{}, steps, by.rate, kBeta1, kBeta2,
                    by.decay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false,
                    by.divisor == 1 ? std::nullopt : std::optional(number(by.divisor)));
}

WeightMap Optimizer::moments() const {
  WeightMap moments;
  if (steps_ == 0) return moments;
  for (const Learnt& learnt : learnt_) {
    moments[learnt.name + ".exp_avg"] = learnt.average;
    moments[learnt.name + ".exp_avg_sq"] = learnt.square;
  }
  return moments;
}

absl::Status Optimizer::restore(const WeightMap& moments, std::int64_t steps) {
  if (steps == 0) return absl::OkStatus();                // the moments are still zero
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // from, to
  for (const Learnt& learnt : learnt_)
    for (const auto& [moment, to] : {std::pair(".exp_avg", learnt.average), std::pair(".exp_avg_sq", learnt.square)}) {
      const auto entry = moments.find(cat(learnt.name, moment));
      if (entry == moments.end()) return invalid_argument("the optimizer's state lacks ", learnt.name, moment);
      if (entry->second.sizes() != to.sizes())
        return invalid_argument("the optimizer's state has ", learnt.name, moment,
                                " in another shape than the parameter");
      copies.emplace_back(entry->second.detach(), to);
    }
  for (const auto& [from, to] : copies) to.copy_(from);
  steps_ = steps;
  return absl::OkStatus();
}

}  // namespace bascule::ref
