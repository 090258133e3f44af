#include <bascule/trainer_ref/model/token_log_probs.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <utility>

namespace bascule::ref {
namespace {

constexpr std::int64_t kPlaces = 23, kChannels = 16, kVocabulary = 301;

struct Case {
  at::Tensor hidden, head, targets, weights;  // weights: of each log-probability in the sum that is differentiated
};

Case random_case(at::ScalarType hidden_type) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  const auto normal = [&](at::IntArrayRef shape) { return at::empty(shape).normal_(0, 1, generator); };
  return {.hidden = normal({kPlaces, kChannels}).to(hidden_type).requires_grad_(),
          .head = normal({kVocabulary, kChannels}).requires_grad_(),
          .targets = at::randint(kVocabulary, {kPlaces}, generator, at::TensorOptions(at::kLong)),
          .weights = normal({kPlaces})};
}

// The plain formula, with all logits at once, in double.
struct Plain {
  at::Tensor log_probs, entropy, hidden_gradient, head_gradient;
};
Plain plainly(const Case& from) {
  const at::Tensor hidden = from.hidden.detach().to(at::kDouble).requires_grad_();
  // The product takes the head in the type of the hidden states.
  const at::Tensor head = from.head.detach().to(from.hidden.scalar_type()).to(at::kDouble).requires_grad_();
  const at::Tensor all = at::mm(hidden, head.t()).log_softmax(1);
  const at::Tensor log_probs = all.gather(1, from.targets.unsqueeze(1)).squeeze(1);
  (log_probs * from.weights).sum().backward();
  return {.log_probs = log_probs.detach(),
          .entropy = -(all.exp() * all).sum(1).detach(),
          .hidden_gradient = hidden.grad(),
          .head_gradient = head.grad()};
}

// The largest difference, as a share of the largest value.
double difference(const at::Tensor& found, const at::Tensor& wanted) {
  EXPECT_EQ(found.sizes(), wanted.sizes());
  return ((found.detach() - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST(TokenLogProbs, AreThePlainFormulasInFloat32WhateverTheChunk) {
  for (const std::int64_t chunk : {1, 5, 23, 1000}) {
    const Case at = random_case(at::kFloat);
    const Plain wanted = plainly(at);
    const TokenLogProbs found = token_log_probs(at.hidden, at.head, at.targets, chunk);
    (found.log_probs * at.weights).sum().backward();
    EXPECT_LT(difference(found.log_probs, wanted.log_probs), 1e-6) << "chunk " << chunk;
    EXPECT_LT(difference(found.entropy, wanted.entropy), 1e-5) << "chunk " << chunk;
    EXPECT_LT(difference(at.hidden.grad(), wanted.hidden_gradient), 1e-5) << "chunk " << chunk;
    EXPECT_LT(difference(at.head.grad(), wanted.head_gradient), 1e-5) << "chunk " << chunk;
  }
}

TEST(TokenLogProbs, InBFloat16TheHeadsGradientIsSummedInFloat32) {
  const Case at = random_case(at::kBFloat16);
  const Plain wanted = plainly(at);
  const TokenLogProbs found = token_log_probs(at.hidden, at.head, at.targets, 2);
  (found.log_probs * at.weights).sum().backward();
  EXPECT_EQ(found.log_probs.scalar_type(), at::kFloat);
  EXPECT_EQ(at.head.grad().scalar_type(), at::kFloat);
  // Logits, and the gradients of logits and hidden states, are rounded once each: 2^-9 = 0.002 of the largest.
  EXPECT_LT(difference(found.log_probs, wanted.log_probs), 0.005);
  EXPECT_LT(difference(at.hidden.grad(), wanted.hidden_gradient), 0.02);
  EXPECT_LT(difference(at.head.grad(), wanted.head_gradient), 0.01);
}

TEST(TokenLogProbs, EntropyHasNoGradientAndIsThatOfTheDistribution) {
  const Case at = random_case(at::kFloat);
  EXPECT_FALSE(token_log_probs(at.hidden, at.head, at.targets, 4).entropy.requires_grad());
  const TokenLogProbs even = token_log_probs(at::zeros_like(at.hidden), at.head, at.targets, 4);
  EXPECT_LT((even.entropy - std::log(static_cast<double>(kVocabulary))).abs().max().item<double>(), 1e-5);
}

TEST(TokenLogProbs, TheDefaultChunkKeepsItsLogitsInTheirBytes) {
  for (const at::DeviceType device : {at::kCPU, at::kCUDA})
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::int64_t chunk = default_logit_chunk(151'936, type, device);
      EXPECT_GE(chunk, 256) << "matrix products want rows";
      EXPECT_LE(chunk * logit_bytes_per_place(151'936, type, device), kLogitBytes);
    }
  EXPECT_EQ(default_logit_chunk(std::int64_t{1} << 40, at::kFloat, at::kCPU), 1);
}

}  // namespace
}  // namespace bascule::ref
