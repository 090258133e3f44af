// How a policy computes: chunks, types, checkpointed layers.
#include <bascule/trainer_ref/grpo/learn/policy.h>

#include <ATen/core/grad_mode.h>

#include "counting_allocator.h"
#include "support.h"

namespace bascule::ref {
namespace {

Policy computing(const ComputeOptions& compute) { return *random_policy(tiny(), 3, at::kCPU, compute); }

Batch batch() {
  static const Sampled sampled;
  return make_batch(sampled.rows());
}

// The gradients of a sum of log-probabilities.
WeightMap gradients_of(const Policy& policy) {
  policy.log_probs(batch(), 0.7).sum().backward();
  WeightMap gradients;
  for (const auto& [name, weight] : policy.weights()) gradients[name] = weight.grad();
  return gradients;
}

TEST(PolicyCompute, CheckpointedLayersGiveTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const WeightMap kept = gradients_of(computing({.dtype = type}));
    const WeightMap again = gradients_of(computing({.dtype = type, .checkpoints_layers = true}));
    for (const auto& [name, gradient] : kept) {
      ASSERT_TRUE(again.at(name).defined()) << name;
      EXPECT_TRUE(at::equal(gradient, again.at(name))) << name << " in " << type;
    }
  }
}

TEST(PolicyCompute, CheckpointedLayersKeepLess) {
  ModelConfig config = tiny();
  config.num_hidden_layers = 8;
  const Sampled sampled;
  std::vector<TrainingRow> rows;
  for (int i = 0; i < 64; ++i) rows.push_back(sampled.rows()[1]);
  const auto peak_with = [&](bool checkpoints) {
    const Policy policy = *random_policy(config, 3, at::kCPU, {.checkpoints_layers = checkpoints});
    const Batch batch = make_batch(rows);
    CountingAllocator counter;
    policy.log_probs(batch, 1).sum().backward();
    for (const auto& [name, weight] : policy.weights()) weight.mutable_grad() = at::Tensor();
    return counter.peak();
  };
  const std::int64_t kept = peak_with(false), again = peak_with(true);
  EXPECT_LT(again, kept / 3) << kept << " bytes without";
}

TEST(PolicyCompute, TheChunkOfLogitsChangesNothingButRounding) {
  const WeightMap whole = gradients_of(computing({})), parts = gradients_of(computing({.logit_chunk = 2}));
  for (const auto& [name, gradient] : whole)
    EXPECT_LT((gradient - parts.at(name)).abs().max().item<double>(), 1e-5) << name;
}

TEST(PolicyCompute, BFloat16IsFloat32ToItsRoundingWithGradientsInFloat32) {
  const Policy wide = computing({}), narrow = computing({.dtype = at::kBFloat16});
  EXPECT_EQ(distance(wide, narrow), 0) << "weights stay float";
  const at::NoGradGuard no_grad;
  const TokenLogProbs expected = wide.score(batch(), 1), found = narrow.score(batch(), 1);
  EXPECT_EQ(found.log_probs.scalar_type(), at::kFloat);
  EXPECT_LT((found.log_probs - expected.log_probs).abs().max().item<double>(), 0.02);
  EXPECT_LT((found.entropy - expected.entropy).abs().max().item<double>(), 0.02);
  EXPECT_GT((found.log_probs - expected.log_probs).abs().max().item<double>(), 0) << "it was computed in bfloat16";
}

TEST(PolicyCompute, GradientsOfBFloat16AreFloat32AndPointTheSameWay) {
  const WeightMap wide = gradients_of(computing({})), narrow = gradients_of(computing({.dtype = at::kBFloat16}));
  for (const auto& [name, gradient] : wide) {
    ASSERT_EQ(narrow.at(name).scalar_type(), at::kFloat) << name;
    const double cosine = at::cosine_similarity(gradient.flatten(), narrow.at(name).flatten(), 0).item<double>();
    EXPECT_GT(cosine, 0.99) << name;
  }
}

TEST(PolicyCompute, TheLikeliestTokenIsThatOfAllLogits) {
  const Policy model = computing({.logit_chunk = 2});
  const at::NoGradGuard no_grad;
  Batch asked = batch();
  const at::Tensor likeliest = model.likeliest(asked);
  const at::Tensor told = model.log_probs(asked, 1);
  asked.targets = likeliest;
  const at::Tensor best = model.log_probs(asked, 1);
  EXPECT_TRUE((best >= told).all().item<bool>());
  for (std::int64_t token = 0; token < tiny().vocab_size; ++token) {
    asked.targets = at::full_like(likeliest, token);
    EXPECT_TRUE((model.log_probs(asked, 1) <= best + 1e-6).all().item<bool>()) << token;
  }
}

}  // namespace
}  // namespace bascule::ref
