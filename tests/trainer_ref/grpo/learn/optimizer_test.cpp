#include <bascule/trainer_ref/grpo/learn/optimizer.h>

#include <gmock/gmock.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

// One matrix and one vector, and a gradient that the test chooses.
struct Parameters {
  WeightMap weights{{"matrix", at::tensor({1.0, -2.0}, at::kDouble).reshape({1, 2}).requires_grad_()},
                    {"norm", at::tensor({3.0}, at::kDouble).requires_grad_()}};
  void set_gradients(double a, double b, double c) {
    weights.at("matrix").mutable_grad() = at::tensor({a, b}, at::kDouble).reshape({1, 2});
    weights.at("norm").mutable_grad() = at::tensor({c}, at::kDouble);
  }
  std::vector<double> values() const {
    const at::Tensor all = at::cat({weights.at("matrix").flatten(), weights.at("norm")}).detach();
    return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
  }
};

TEST(Optimizer, StepsAsAdamWWithClippingAndDecayOfMatricesOnly) {
  Parameters parameters;
  Optimizer optimizer(parameters.weights, {.learning_rate = 0.1, .weight_decay = 0.5, .max_grad_norm = 1});
  parameters.set_gradients(3, 0, 4);
  EXPECT_DOUBLE_EQ(optimizer.step(), 5);
  // The first step of Adam is lr · g/|g| (except for ε), whatever remains of g after clipping to norm 1; decay first
  // multiplies the matrix by 1 − 0.1 · 0.5.
  const std::vector<double> after = parameters.values();
  EXPECT_NEAR(after[0], 1.0 * 0.95 - 0.1, 1e-7);
  EXPECT_NEAR(after[1], -2.0 * 0.95, 1e-7);
  EXPECT_NEAR(after[2], 3.0 - 0.1, 1e-7);
  // The clipped gradient is 0.6, 0, 0.8; the moments after a step are 0.1 · g and 0.001 · g².
  EXPECT_NEAR(optimizer.moments().at("norm.exp_avg").item<double>(), 0.1 * 0.8, 1e-9);
  EXPECT_NEAR(optimizer.moments().at("norm.exp_avg_sq").item<double>(), 0.001 * 0.64, 1e-9);
}

TEST(Optimizer, ContinuesExactlyFromItsMoments) {
  Parameters straight, resumed;
  const OptimizerOptions options{.learning_rate = 0.1, .warmup_steps = 5};
  Optimizer first(straight.weights, options);
  straight.set_gradients(1, 2, 3);
  first.step();
  straight.set_gradients(-2, 1, 0.5);
  first.step();
  Parameters copy;
  for (auto& [name, tensor] : copy.weights) tensor.detach().copy_(straight.weights.at(name));
  Optimizer second(copy.weights, options);
  ASSERT_TRUE(second.restore(first.moments(), first.steps()).ok());
  straight.set_gradients(0.1, 0.2, 0.3);
  copy.set_gradients(0.1, 0.2, 0.3);
  first.step();
  second.step();
  EXPECT_EQ(copy.values(), straight.values());
}

// LibTorch's own optimizer wrote the moments of older checkpoints.
TEST(Optimizer, GoesOnFromTheMomentsOfLibTorchsAdamWAsThatWould) {
  Parameters theirs, ours;
  torch::optim::AdamW adamw({theirs.weights.at("matrix"), theirs.weights.at("norm")},
                            torch::optim::AdamWOptions(0.1).weight_decay(0));
  const auto set_gradients = [](Parameters& parameters, int step) {
    parameters.set_gradients(0.3 - 0.2 * step, 0.1 * step, 0.05 * step * step);
  };
  for (int step = 0; step < 3; ++step) {
    set_gradients(theirs, step);
    adamw.step();
  }
  WeightMap moments;
  for (auto& [name, tensor] : theirs.weights) {
    ours.weights.at(name).detach().copy_(tensor.detach());
    const auto& state =
        static_cast<const torch::optim::AdamWParamState&>(*adamw.state().at(tensor.unsafeGetTensorImpl()));
    moments[name + ".exp_avg"] = state.exp_avg();
    moments[name + ".exp_avg_sq"] = state.exp_avg_sq();
  }
  Optimizer optimizer(ours.weights, {.learning_rate = 0.1, .max_grad_norm = 0});
  const absl::Status restored = optimizer.restore(moments, 3);
  ASSERT_TRUE(restored.ok()) << restored;
  for (int step = 3; step < 8; ++step) {
    set_gradients(theirs, step);
    set_gradients(ours, step);
    adamw.step();
    optimizer.step();
  }
  EXPECT_THAT(ours.values(), ::testing::Pointwise(::testing::DoubleNear(1e-9), theirs.values()));
}

TEST(Optimizer, ChangesNothingOnAGradientThatIsNotFinite) {
  Parameters parameters;
  const std::vector<double> before = parameters.values();
  Optimizer optimizer(parameters.weights, {.learning_rate = 0.1});
  parameters.set_gradients(std::numeric_limits<double>::quiet_NaN(), 0, 0);
  EXPECT_TRUE(std::isnan(optimizer.step()));
  EXPECT_EQ(parameters.values(), before);
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(Optimizer, ChangesNothingOnALossThatIsNotFinite) {
  Parameters parameters;
  Optimizer optimizer(parameters.weights, {.learning_rate = 0.1});
  parameters.set_gradients(1, 2, 2);
  optimizer.step(0.5);
  const std::vector<double> before = parameters.values();
  const double moment = optimizer.moments().at("norm.exp_avg").item<double>();
  EXPECT_NEAR(optimizer.step(std::numeric_limits<double>::infinity()), 1, 1e-12)
      << "the gradients, which were clipped, are finite";
  EXPECT_EQ(parameters.values(), before);
  EXPECT_EQ(optimizer.moments().at("norm.exp_avg").item<double>(), moment);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(Optimizer, CountsAStepThatFailsHalfWay) {
  Parameters parameters;
  const std::vector<double> before = parameters.values();
  Optimizer optimizer(parameters.weights, {.learning_rate = 0.1});
  parameters.set_gradients(1, 1, 1);
  parameters.weights.at("norm").mutable_grad() = at::ones({1}, at::kFloat);  // the vectors come after the matrices
  EXPECT_THROW(optimizer.step(), c10::Error);
  EXPECT_NE(parameters.values(), before);
  EXPECT_EQ(optimizer.steps(), 1) << "or the weights would be taken for the previous step's";
}

TEST(Optimizer, NamesTheMomentThatIsMissing) {
  Parameters parameters;
  Optimizer optimizer(parameters.weights, {});
  EXPECT_THAT(optimizer.restore({}, 3).message(), HasSubstr("lacks matrix.exp_avg"));
}

TEST(LearningRate, ClimbsLinearlyAndStays) {
  const OptimizerOptions options{.learning_rate = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at({.learning_rate = 2.0}, 0), 2.0);
}

TEST(LearningRate, FallsAsItsScheduleSays) {
  OptimizerOptions options{.learning_rate = 1.0, .min_learning_rate = 0.2, .warmup_steps = 2, .decay_steps = 10};
  options.schedule = LearningRateSchedule::kCosine;
  for (const std::int64_t step : {2, 3, 6, 9, 10, 50}) {
    const double part = std::min(1.0, static_cast<double>(step - 2) / 8);
    EXPECT_NEAR(learning_rate_at(options, step), 0.2 + 0.8 * 0.5 * (1 + std::cos(std::acos(-1.0) * part)), 1e-12)
        << step;
  }
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.5);
  options.schedule = LearningRateSchedule::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 6), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 50), 0.2);
  options.schedule = LearningRateSchedule::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 50), 1.0);
}

TEST(LearningRate, FallsToZeroWhereToldTo) {
  const OptimizerOptions options{.learning_rate = 1.0, .warmup_steps = 2, .decay_steps = 6};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 2), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 5), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 0.0);
}

}  // namespace
}  // namespace bascule::ref
