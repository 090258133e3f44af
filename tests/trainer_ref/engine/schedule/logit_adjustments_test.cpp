#include <bascule/trainer_ref/engine/schedule/logit_adjustments.h>

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "plain_adjust.h"
#include <bascule/trainer_ref/engine/schedule/sampler.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using Tokens = std::vector<std::int64_t>;

std::vector<float> adjusted(std::vector<float> logits, const PlainAdjustments& wanted, const Tokens& prompt,
                            const Tokens& completion) {
  adjust(logits, wanted.made(), prompt, completion);
  return logits;
}

TEST(LogitAdjustments, RepetitionIsPenalizedInPromptAndCompletionByTheSign) {
  EXPECT_THAT(adjusted({2, -2, 2, -2, 2}, {.repetition = 2}, {0, 1, 0}, {3, 2}), ElementsAre(1, -4, 1, -4, 2));
}

TEST(LogitAdjustments, PresenceAndFrequencyCountOnlyTheCompletion) {
  EXPECT_THAT(adjusted({2, 2, 2}, {.presence = 0.5}, {0, 0}, {1, 1, 1}), ElementsAre(2, 1.5, 2));
  EXPECT_THAT(adjusted({2, 2, 2}, {.frequency = 0.5}, {0, 0}, {1, 1, 1}), ElementsAre(2, 0.5, 2));
  EXPECT_THAT(adjusted({2, 2, 2}, {.presence = -1, .frequency = -0.25}, {}, {2, 1, 2}), ElementsAre(2, 3.25, 3.5));
}

TEST(LogitAdjustments, ABiasComesBeforeThePenalties) {
  // 1 - 3 is negative, so it is multiplied.
  EXPECT_THAT(adjusted({1, 1}, {.repetition = 2, .bias = {{0, -3}}}, {0, 1}, {}), ElementsAre(-4, 0.5));
}

TEST(LogitAdjustments, EndsAreForbiddenUntilThereAreEnoughTokens) {
  const float never = -std::numeric_limits<float>::infinity();
  const PlainAdjustments wanted{.bias = {{1, 100}}, .min_tokens = 2, .ends = {2, 1, 2}};
  EXPECT_THAT(adjusted({1, 1, 1}, wanted, {0}, {}), ElementsAre(1, never, never));
  EXPECT_THAT(adjusted({1, 1, 1}, wanted, {0}, {0}), ElementsAre(1, never, never));
  EXPECT_THAT(adjusted({1, 1, 1}, wanted, {0}, {0, 0}), ElementsAre(1, 101, 1));
}

TEST(LogitAdjustments, AreNoneUnlessTheRequestNamesSome) {
  EXPECT_FALSE(LogitAdjustments{}.any(0));
  EXPECT_FALSE(LogitAdjustments{.min_tokens = 3}.any(0)) << "nothing ends it";
  EXPECT_TRUE(LogitAdjustments{.repetition_penalty = 1.1F}.any(0));
  const LogitAdjustments early = PlainAdjustments{.min_tokens = 3, .ends = {7}}.made();
  EXPECT_TRUE(early.any(2));
  EXPECT_FALSE(early.any(3));
}

TEST(LogitAdjustments, AreThoseOfThePlainestWay) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 4);
  const auto number = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(50);
    for (float& logit : logits) logit = normal(random);
    Tokens prompt(random() % 40), completion(random() % 40);
    for (Tokens* tokens : {&prompt, &completion})
      for (std::int64_t& token : *tokens) token = static_cast<std::int64_t>(random() % 50);
    PlainAdjustments wanted;
    if (round % 2 == 0) wanted.repetition = number(0.5, 2);
    if (round % 3 == 0) wanted.presence = number(-2, 2);
    if (round % 5 == 0) wanted.frequency = number(-2, 2);
    for (int i = 0; i < round % 7; ++i) wanted.bias[static_cast<std::int64_t>(random() % 50)] = number(-100, 100);
    if (round % 4 == 0) wanted.min_tokens = 20;
    wanted.ends = {3, 49};
    const std::vector<double> expected = wanted.of(logits, prompt, completion);
    const std::vector<float> found = adjusted(logits, wanted, prompt, completion);
    for (std::size_t id = 0; id < found.size(); ++id) {
      if (std::isinf(expected[id])) {
        EXPECT_EQ(found[id], expected[id]);
      } else {
        EXPECT_NEAR(found[id], expected[id], 1e-4) << "round " << round << ", token " << id;
      }
    }
  }
}

TEST(LogitAdjustments, CountInProcessedLogprobsAndNotInRawOnes) {
  const std::vector<float> raw{0, std::log(2.0F), std::log(4.0F), 0};
  std::vector<float> logits = raw;
  const PlainAdjustments wanted{.bias = {{2, -100}}};
  adjust(logits, wanted.made(), Tokens{}, Tokens{});
  SamplingParams params{.temperature = 0, .logprobs = LogprobsMode::kRaw, .top_logprobs = 1};
  const Sample told_raw = *sample(logits, raw, params, 0.5);
  EXPECT_EQ(told_raw.token, 1) << "the likeliest one after the bias";
  EXPECT_NEAR(told_raw.logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(told_raw.rank, 2);
  EXPECT_EQ(told_raw.top[0].token, 2);
  params.logprobs = LogprobsMode::kProcessed;
  const Sample processed = *sample(logits, raw, params, 0.5);
  EXPECT_NEAR(processed.logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(processed.rank, 1);
  EXPECT_EQ(processed.top[0].token, 1);
}

}  // namespace
}  // namespace bascule::ref
