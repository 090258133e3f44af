#include <bascule/trainer_ref/grpo/learn/loss.h>

#include <gmock/gmock.h>

#include <cmath>

namespace bascule::ref {
namespace {

// Two completions, of three tokens and of two; the constants are printed by loss_numbers.py.
constexpr StepShape kStep{.completions = 4, .tokens = 11, .micro_batches = 2};

LossInput input() {
  const auto f64 = at::TensorOptions().dtype(at::kDouble);
  return {.log_probs = at::tensor({-0.8, -2.0, -0.5, -0.7, -1.9}, f64).requires_grad_(),
          .old_log_probs = at::tensor({-1.2, -1.6, -0.5, -1.1, -1.4}, f64),
          .behaviour_log_probs = at::tensor({-1.2, -2.5, -0.7, -1.0, -1.4}, f64),
          .reference_log_probs = at::tensor({-1.1, -1.9, -0.9, -0.6, -1.5}, f64),
          .advantages = at::tensor({1.5, -0.5}, f64),
          .completion_tokens = at::tensor({3.0, 2.0}, f64),
          .row_of = at::tensor({0, 0, 0, 1, 1}, at::kLong)};
}
LossOptions options(LossKind kind) {
  return {.kind = kind, .epsilon_low = 0.2, .epsilon_high = 0.28, .beta = 0.04, .importance_cap = 2, .max_tokens = 3};
}
double value(LossKind kind) { return policy_loss(input(), kStep, options(kind)).value.item<double>(); }

std::vector<double> gradient(LossKind kind) {
  const LossInput in = input();
  policy_loss(in, kStep, options(kind)).value.backward();
  const at::Tensor grad = in.log_probs.grad().contiguous();
  return {grad.data_ptr<double>(), grad.data_ptr<double>() + grad.numel()};
}

using ::testing::DoubleNear;
using ::testing::Pointwise;

TEST(Loss, ReducesAsItsKindSays) {
  EXPECT_NEAR(value(LossKind::kGrpo), -0.3450165054442029, 1e-12);
  EXPECT_NEAR(value(LossKind::kBnpo), -0.46796026795387746, 1e-12);
  EXPECT_NEAR(value(LossKind::kDrGrpo), -0.38996688996156453, 1e-12);
  EXPECT_NEAR(value(LossKind::kDapo), -0.4254184254126159, 1e-12);
}

TEST(Loss, GradientsFlowThroughRatioAndDivergenceOnly) {
  EXPECT_THAT(gradient(LossKind::kDapo),
              Pointwise(DoubleNear(1e-12), {0.0009424791975210259, -0.18319699771181305, -0.16535608537106186,
                                            0.0609747788240887, -0.001788453445968255}));
  EXPECT_THAT(gradient(LossKind::kGrpo),
              Pointwise(DoubleNear(1e-12), {0.0008639392643942737, -0.16793058123582863, -0.15157641159014004,
                                            0.08384032088312196, -0.0024591234882063505}));
}

TEST(Loss, CountsClippedTokensAndDivergence) {
  const Loss loss = policy_loss(input(), kStep, options(LossKind::kDapo));
  EXPECT_EQ(loss.tokens, 5);
  EXPECT_EQ(loss.clipped, 2) << "the first token of each: up with a gain, down with a loss";
  EXPECT_NEAR(loss.kl_sum, 0.21330480050992295, 1e-12);
}

TEST(Loss, MicroBatchesAddUpToTheStepButForBnpo) {
  for (const LossKind kind : {LossKind::kGrpo, LossKind::kDrGrpo, LossKind::kDapo}) {
    LossInput in = input();
    const StepShape alone{.completions = 2, .tokens = 5, .micro_batches = 1};
    const double whole = policy_loss(in, alone, options(kind)).value.item<double>();
    double parts = 0;
    for (int row = 0; row < 2; ++row) {
      const at::Tensor tokens = (in.row_of == row).nonzero().flatten();
      const auto cut = [&](const at::Tensor& tensor) { return tensor.index_select(0, tokens); };
      const LossInput part{.log_probs = cut(in.log_probs),
                           .old_log_probs = cut(in.old_log_probs),
                           .behaviour_log_probs = cut(in.behaviour_log_probs),
                           .reference_log_probs = cut(in.reference_log_probs),
                           .advantages = in.advantages.slice(0, row, row + 1),
                           .completion_tokens = in.completion_tokens.slice(0, row, row + 1),
                           .row_of = at::zeros_like(tokens)};
      parts += policy_loss(part, alone, options(kind)).value.item<double>();
    }
    EXPECT_NEAR(parts, whole, 1e-12);
  }
}

TEST(Loss, WithoutReferenceAndCorrectionIsTheClippedObjective) {
  LossInput in = input();
  in.reference_log_probs = at::Tensor();
  LossOptions plain = options(LossKind::kDapo);
  plain.beta = 0;
  plain.importance_cap = 0;
  // −Σ min(ρA, clip(ρ)A) / 11, with ρ = e^0.4, e^-0.4, 1 (A = 1.5) and e^0.4, e^-0.5 (A = -0.5); two are
  // clipped.
  const double expected = -(1.28 * 1.5 + std::exp(-0.4) * 1.5 + 1.5 + std::exp(0.4) * -0.5 + 0.8 * -0.5) / 11;
  const Loss loss = policy_loss(in, kStep, plain);
  EXPECT_NEAR(loss.value.item<double>(), expected, 1e-12);
  EXPECT_EQ(loss.kl_sum, 0);
}

// GSPO, token by token: s = exp(mean of log ρ over the completion) replaces each ρ.
TEST(Loss, ASequenceHasTheGeometricMeanOfItsTokensRatios) {
  LossInput in = input();
  in.reference_log_probs = at::Tensor();
  LossOptions sequence = options(LossKind::kGrpo);
  sequence.importance_level = ImportanceLevel::kSequence;
  sequence.importance_cap = 0;
  sequence.epsilon_low = 0.05;
  sequence.epsilon_high = 0.5;
  const double first = std::exp((0.4 - 0.4 + 0) / 3), second = std::exp((0.4 - 0.5) / 2);  // 1, 0.951: within the clip
  const Loss loss = policy_loss(in, kStep, sequence);
  EXPECT_NEAR(loss.value.item<double>(), -(1.5 * first - 0.5 * second) / 4, 1e-12) << "of four completions";
  EXPECT_EQ(loss.clipped, 0);
  loss.value.backward();
  // d/d log π_t of −A s / 4 is −A s / (4 |y|), the same for each token.
  const at::Tensor gradient = in.log_probs.grad();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(gradient[i].item<double>(), -1.5 * first / 12, 1e-12);
  for (int i = 3; i < 5; ++i) EXPECT_NEAR(gradient[i].item<double>(), 0.5 * second / 8, 1e-12);

  sequence.epsilon_low = 0.04;
  EXPECT_EQ(policy_loss(in, kStep, sequence).clipped, 2) << "a completion is clipped whole";
}

// OPSM: the second completion has a negative advantage, and mean(log π_behaviour − log π_θ) = (−0.3 + 0.5) / 2.
TEST(Loss, MasksWrongCompletionsThatThePolicyHasLeft) {
  LossOptions masking = options(LossKind::kDapo);
  const LossInput in = input();
  const double both = policy_loss(in, kStep, masking).value.item<double>();
  masking.off_policy_mask = 0.11;
  EXPECT_EQ(policy_loss(in, kStep, masking).masked, 0) << "0.1 is not more";
  EXPECT_EQ(policy_loss(in, kStep, masking).value.item<double>(), both);
  masking.off_policy_mask = 0.09;
  const Loss loss = policy_loss(in, kStep, masking);
  EXPECT_EQ(loss.masked, 1);
  // The two tokens lose −w min(ρ A, clip(ρ) A) / 11, with w = e^-0.1 and 1; the divergence stays.
  const double gone = (std::exp(-0.1) * 0.5 * std::exp(0.4) + 0.5 * 0.8) / 11;
  EXPECT_NEAR(loss.value.item<double>(), both - gone, 1e-12);
  loss.value.backward();
  EXPECT_NE(in.log_probs.grad()[3].item<double>(), 0) << "its divergence from the reference still has a gradient";

  LossInput right = input();
  right.advantages = -right.advantages;  // now the first is wrong, whose mean is (−0.4 − 0.5 − 0.2) / 3
  EXPECT_EQ(policy_loss(right, kStep, masking).masked, 0) << "a right answer is never masked";
}

TEST(Loss, TellsTheWeightsOfWhatEnginesSampled) {
  const Loss loss = policy_loss(input(), kStep, options(LossKind::kDapo));
  // π_old/π_behaviour is e^0, e^0.9, e^0.2 and e^-0.1, e^0.
  EXPECT_NEAR(loss.weights, 1 + 2 + std::exp(0.2) + std::exp(-0.1) + 1, 1e-12);
  EXPECT_EQ(loss.capped, 1) << "e^0.9 is more than 2";
  LossOptions plain = options(LossKind::kDapo);
  plain.importance_cap = 0;
  EXPECT_TRUE(std::isnan(policy_loss(input(), kStep, plain).weights)) << "not measured";
  EXPECT_TRUE(std::isnan(policy_loss(input(), kStep, plain).capped));
}

// e^89 overflows float: a single token must not make a step's gradients NaN.
TEST(Loss, AFarLikelierTokenLeavesGradientsFinite) {
  for (const double advantage : {1.0, -1.0}) {
    LossInput in = input();
    in.log_probs = at::tensor({-0.1f, -2.0f, -0.5f, -0.7f, -1.9f}).requires_grad_();
    in.old_log_probs = at::tensor({-120.0f, -1.6f, -0.5f, -1.1f, -1.4f});
    in.behaviour_log_probs = in.old_log_probs;
    in.reference_log_probs = at::Tensor();
    in.advantages = at::tensor({advantage, advantage}, at::kFloat);
    in.completion_tokens = at::tensor({3.0f, 2.0f});
    const Loss loss = policy_loss(in, kStep, {.kind = LossKind::kDapo});
    loss.value.backward();
    EXPECT_TRUE(std::isfinite(loss.value.item<double>())) << advantage;
    EXPECT_TRUE(in.log_probs.grad().isfinite().all().item<bool>()) << advantage;
  }
}

TEST(Loss, KindsHaveNames) {
  EXPECT_EQ(loss_kind_named("grpo"), LossKind::kGrpo);
  EXPECT_EQ(loss_kind_named("bnpo"), LossKind::kBnpo);
  EXPECT_EQ(loss_kind_named("dr_grpo"), LossKind::kDrGrpo);
  EXPECT_EQ(loss_kind_named("dapo"), LossKind::kDapo);
  EXPECT_EQ(loss_kind_named("ppo"), std::nullopt);
  EXPECT_EQ(importance_level_named("token"), ImportanceLevel::kToken);
  EXPECT_EQ(importance_level_named("sequence"), ImportanceLevel::kSequence);
  EXPECT_EQ(importance_level_named("word"), std::nullopt);
}

}  // namespace
}  // namespace bascule::ref
