#include <bascule/trainer_ref/grpo/optimizer.h>

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/text.h>

namespace bascule::ref {

struct Optimizer::Impl {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  OptimizerOptions options;
  std::unique_ptr<torch::optim::AdamW> adamw;
  std::int64_t steps = 0;

  torch::optim::AdamWParamState* state_of(const at::Tensor& parameter) const {
    const auto found = adamw->state().find(parameter.unsafeGetTensorImpl());
    return found == adamw->state().end() ? nullptr : static_cast<torch::optim::AdamWParamState*>(found->second.get());
  }
};

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

Optimizer::Optimizer(const WeightMap& parameters, const OptimizerOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  std::vector<at::Tensor> matrices, vectors;
  for (const auto& [name, tensor] : parameters) {
    impl_->parameters.emplace_back(name, tensor);
    (tensor.dim() > 1 ? matrices : vectors).push_back(tensor);
  }
  const auto with_decay = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(options.learning_rate).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, with_decay(options.weight_decay));
  if (!vectors.empty()) groups.emplace_back(vectors, with_decay(0));
  impl_->adamw = std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(options.learning_rate));
}

Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer::~Optimizer() = default;

void Optimizer::zero_grad() { impl_->adamw->zero_grad(); }

double Optimizer::step(double loss) {
  std::vector<at::Tensor> squares;
  for (const auto& [name, parameter] : impl_->parameters)
    if (parameter.grad().defined()) squares.push_back(parameter.grad().square().sum());
  // One number comes from the device, not one a parameter: each would wait for all that is under way there.
  const double norm = squares.empty() ? 0 : std::sqrt(at::stack(squares).sum(at::kDouble).item<double>());
  if (!std::isfinite(norm) || !std::isfinite(loss)) return norm;
  if (impl_->options.max_grad_norm > 0 && norm > impl_->options.max_grad_norm)
    for (const auto& [name, parameter] : impl_->parameters)
      if (at::Tensor gradient = parameter.grad(); gradient.defined())
        gradient.mul_(impl_->options.max_grad_norm / norm);

  for (torch::optim::OptimizerParamGroup& group : impl_->adamw->param_groups())
    group.options().set_lr(learning_rate_at(impl_->options, impl_->steps));
  ++impl_->steps;  // counted before: one that fails half-way has changed parameters
  impl_->adamw->step();
  return norm;
}

WeightMap Optimizer::moments() const {
  WeightMap moments;
  for (const auto& [name, parameter] : impl_->parameters)
    if (const torch::optim::AdamWParamState* state = impl_->state_of(parameter)) {
      moments[name + ".exp_avg"] = state->exp_avg();
      moments[name + ".exp_avg_sq"] = state->exp_avg_sq();
    }
  return moments;
}

std::int64_t Optimizer::steps() const { return impl_->steps; }

absl::Status Optimizer::restore(const WeightMap& moments, std::int64_t steps) {
  if (steps == 0) return absl::OkStatus();  // no moments yet
  std::vector<std::pair<at::Tensor, at::Tensor>> found;
  for (const auto& [name, parameter] : impl_->parameters) {
    std::vector<at::Tensor> pair;
    for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
      const auto entry = moments.find(name + moment);
      if (entry == moments.end()) return invalid_argument("the optimizer's state lacks ", name, moment);
      if (entry->second.sizes() != parameter.sizes())
        return invalid_argument("the optimizer's state has ", name, moment, " in another shape than the parameter");
      pair.push_back(at::empty_like(parameter.detach()).copy_(entry->second.detach()));
    }
    found.emplace_back(pair[0], pair[1]);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    state->step(steps);
    state->exp_avg(found[i].first);
    state->exp_avg_sq(found[i].second);
    impl_->adamw->state()[impl_->parameters[i].second.unsafeGetTensorImpl()] = std::move(state);
  }
  impl_->steps = steps;
  return absl::OkStatus();
}

}  // namespace bascule::ref
