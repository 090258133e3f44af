#include <bascule/trainer_ref/ops/token_scores.h>

#include "on_device.h"

namespace bascule::ref::ops {
namespace {

class TokenScoresTest : public ::testing::TestWithParam<DType> {};

TEST_P(TokenScoresTest, AreItsTwins) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937 random(1);
  for (const std::int64_t vocabulary : {1, 14, 4099, 151'936})
    for (const std::int64_t rows : {1, 3, 130}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << vocabulary);
      const auto n = static_cast<std::size_t>(rows);
      RealTensor logits = RealTensor::random(random, n * static_cast<std::size_t>(vocabulary), GetParam(), 4, -7);
      std::vector<std::int64_t> ids;
      std::vector<float> told;
      for (std::int64_t row = 0; row < rows; ++row) {
        ids.push_back(static_cast<std::int64_t>(random()) % vocabulary);
        told.push_back(static_cast<float>(row) - 1.5f);
      }
      const Both<std::int64_t> targets(ids);
      const Both<float> weights(told);
      Both<float> log_sum(n), log_prob(n), entropy(n);
      plain::score_tokens({log_sum.host.data(), log_prob.host.data(), entropy.host.data()}, logits.host(), ids.data(),
                          rows, vocabulary);
      ASSERT_CUDA(score_tokens({log_sum.device(), log_prob.device(), entropy.device()}, logits.device(), GetParam(),
                               targets.device(), rows, vocabulary, nullptr));
      for (const auto* found : {&log_sum, &log_prob, &entropy}) {
        const std::vector<float> values = found->fetched();
        for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(values[i], found->host[i], 2e-4) << "row " << i;
      }
      plain::differentiate_scores(logits.host(), ids.data(), log_sum.host.data(), told.data(), rows, vocabulary);
      ASSERT_CUDA(differentiate_scores(logits.device(), GetParam(), targets.device(), log_sum.device(),
                                       weights.device(), rows, vocabulary, nullptr));
      EXPECT_LE(logits.difference(), tolerance(GetParam()));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, TokenScoresTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace bascule::ref::ops
