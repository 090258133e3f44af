// Compares the decoder with the results of Hugging Face's transformers (tests/tools/make-fixtures.py).
#include <bascule/trainer_ref/model/decoder.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "support.h"
#include <bascule/trainer_ref/model/causal_attention.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::ref {
namespace {

class OneThread : public testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const testing::Environment* const kOneThread =
    testing::AddGlobalTestEnvironment(new OneThread);  // owned by GoogleTest

// A tensor of the fixture's expected.safetensors.
at::Tensor expected(const std::string& model, const std::string& name) {
  const auto file = SafetensorsFile::open(fixture(model) / "expected.safetensors");
  if (!file.ok()) throw std::runtime_error(std::string(message_of(file.status())));
  const SafetensorsHeader::Entry* entry = file->header().find(name);
  return at::from_blob(const_cast<std::byte*>(file->bytes(*entry).data()), entry->spec.shape,
                       libtorch::scalar_type_of(entry->spec.dtype))
      .clone();
}

class DecoderTest : public testing::TestWithParam<const char*> {
 protected:
  void load(DType dtype) {
    const auto config = read_config(fixture(GetParam()));
    ASSERT_TRUE(config.ok()) << config.status();
    auto weights = read_weights(fixture(GetParam()), *config, dtype);
    ASSERT_TRUE(weights.ok()) << weights.status();
    config_ = *config;
    weights_ = *std::move(weights);
  }
  // token_ids [T] → logits [T, V]
  at::Tensor logits_of(const at::Tensor& token_ids) const {
    const auto decoder = Decoder::bind(config_, weights_);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    CausalAttention attention(pack_rows({token_ids.size(0)}));
    return decoder->logits(decoder->forward(token_ids, at::arange(token_ids.size(0)), attention));
  }
  // The largest difference, as a share of the largest logit.
  double difference(const at::Tensor& found, const at::Tensor& wanted) {
    EXPECT_EQ(found.sizes(), wanted.sizes());
    return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
  }

  ModelConfig config_;
  WeightMap weights_;
};

// Sums of several hundred float32 products, in another order than Hugging Face's: 1e-5 of the largest logit is two
// orders of magnitude above one rounding (6e-8), and three below the effect of any wrong formula on these models.
TEST_P(DecoderTest, LogitsAgreeInFloat32) {
  load(DType::kF32);
  const at::NoGradGuard no_grad;
  const double found = difference(logits_of(expected(GetParam(), "input_ids")), expected(GetParam(), "logits"));
  RecordProperty("difference", cat(found));
  EXPECT_LT(found, 1e-5);
}

// One rounding of bfloat16 is 2^-9 = 0.002; about ten follow each other through two layers.
TEST_P(DecoderTest, LogitsAgreeInBFloat16) {
  load(DType::kBF16);
  const at::NoGradGuard no_grad;
  const at::Tensor logits = logits_of(expected(GetParam(), "input_ids"));
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  const double found = difference(logits, expected(GetParam(), "logits_bf16"));
  RecordProperty("difference", cat(found));
  EXPECT_LT(found, 0.02);
}

TEST_P(DecoderTest, GreedyTokensAreEqual) {
  load(DType::kF32);
  const at::NoGradGuard no_grad;
  const at::Tensor wanted = expected(GetParam(), "generated");
  at::Tensor found = wanted.narrow(0, 0, 8);
  while (found.size(0) < wanted.size(0)) found = at::cat({found, logits_of(found)[-1].argmax().view(1)});
  EXPECT_TRUE(at::equal(found, wanted)) << found << wanted;
}

TEST_P(DecoderTest, GradientsReachEveryWeight) {
  load(DType::kF32);
  for (auto& [name, weight] : weights_) weight.requires_grad_();
  logits_of(expected(GetParam(), "input_ids")).log_softmax(-1).select(1, 3).mean().backward();
  for (const auto& [name, weight] : weights_) {
    ASSERT_TRUE(weight.grad().defined()) << name;
    EXPECT_GT(weight.grad().abs().max().item<double>(), 0) << name;
  }
}

TEST_P(DecoderTest, PackedRowsEqualEachAlone) {
  load(DType::kF32);
  const at::NoGradGuard no_grad;
  const at::Tensor ids = expected(GetParam(), "input_ids");
  const at::Tensor first = ids.narrow(0, 0, 12), second = ids.narrow(0, 12, 7);
  const auto decoder = Decoder::bind(config_, weights_);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  CausalAttention attention(pack_rows({12, 7}));
  const at::Tensor logits =
      decoder->logits(decoder->forward(ids.narrow(0, 0, 19), at::cat({at::arange(12), at::arange(7)}), attention));
  EXPECT_LT(difference(logits.narrow(0, 0, 12), logits_of(first)), 1e-5);
  EXPECT_LT(difference(logits.narrow(0, 12, 7), logits_of(second)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderTest,
                         testing::Values("llama_scaled", "llama_biased", "mistral", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

class BindTest : public DecoderTest {};

TEST_P(BindTest, SharesTheWeightsItIsGiven) {
  load(DType::kF32);
  const at::NoGradGuard no_grad;
  const at::Tensor ids = expected(GetParam(), "input_ids");
  const auto decoder = Decoder::bind(config_, weights_);
  ASSERT_TRUE(decoder.ok());
  CausalAttention attention(pack_rows({ids.size(0)}));
  const at::Tensor before = decoder->forward(ids, at::arange(ids.size(0)), attention);
  weights_.at("model.norm.weight").mul_(2);
  EXPECT_TRUE(at::equal(decoder->forward(ids, at::arange(ids.size(0)), attention), before * 2));
}

TEST_P(BindTest, NamesTheFirstTensorThatDoesNotFitAndCountsTheRest) {
  load(DType::kF32);
  const auto refused = [&](const WeightMap& weights, const std::string& text) {
    expect_error(Decoder::bind(config_, weights).status(), absl::StatusCode::kInvalidArgument, text);
  };
  WeightMap weights = weights_;
  weights.erase("model.layers.0.mlp.up_proj.weight");
  refused(weights, "model.layers.0.mlp.up_proj.weight is missing");
  weights.erase("model.layers.1.mlp.up_proj.weight");
  weights["model.other"] = at::zeros({1});
  refused(weights, "model.layers.0.mlp.up_proj.weight is missing (and 2 more)");
  weights = weights_;
  weights["model.other"] = at::zeros({1});
  refused(weights, "model.other is surplus");
  weights = weights_;
  weights["model.norm.weight"] = at::zeros({31});
  refused(weights, "model.norm.weight: expected shape [32], found [31]");
  weights["model.norm.weight"] = weights_["model.norm.weight"].to(at::kBFloat16);
  refused(weights, "model.norm.weight: expected dtype Float");
  for (auto& [name, weight] : weights) weight = weight.to(at::kHalf);
  refused(weights, "weights of dtype Half");
}

INSTANTIATE_TEST_SUITE_P(OneFamily, BindTest, testing::Values("qwen2"));

}  // namespace
}  // namespace bascule::ref
