#include <bascule/trainer_ref/engine/schedule/sampler.h>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace bascule::ref {
namespace {

using ::testing::DoubleNear;

const std::vector<float> kLogits{0.0F, std::log(2.0F), std::log(4.0F), std::log(1.0F)};  // 1/8, 2/8, 4/8, 1/8

// Frequencies within 0.01 of these.
auto near(const std::vector<double>& expected) { return ::testing::Pointwise(DoubleNear(0.01), expected); }

std::vector<double> frequencies(const SamplingParams& params, int draws) {
  std::vector<double> counts(kLogits.size());
  for (int i = 0; i < draws; ++i)
    counts[static_cast<std::size_t>(sample(kLogits, params, uniform(1, 2, static_cast<std::uint64_t>(i)))->token)] +=
        1.0 / draws;
  return counts;
}

TEST(Sampler, GreedyTakesTheHighestAndTheFirstOfEquals) {
  EXPECT_EQ(sample(kLogits, {.temperature = 0}, 0.99)->token, 2);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3}, {.temperature = 0}, 0.99)->token, 1);
}

TEST(Sampler, ATemperatureOfNextToNothingIsGreedy) {
  for (const double temperature : {1e-310, 1e-7}) {
    const std::optional<Sample> drawn = sample(kLogits, {.temperature = temperature}, 0.99);
    ASSERT_TRUE(drawn) << temperature;
    EXPECT_EQ(drawn->token, 2);
    EXPECT_EQ(drawn->logprob, sample(kLogits, {.temperature = 0}, 0.99)->logprob);
  }
  EXPECT_EQ(sample(kLogits, {.temperature = 1e-6}, 0.99)->token, 2) << "the least temperature for sampling";
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
  EXPECT_THAT(frequencies({}, 40000), near({0.125, 0.25, 0.5, 0.125}));
}

TEST(Sampler, TemperatureSharpensTheDistribution) {
  // Half the temperature squares the probabilities: 1, 4, 16, 1 of 22.
  EXPECT_THAT(frequencies({.temperature = 0.5}, 40000), near({1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0}));
}

TEST(Sampler, TopKKeepsTheMostProbable) {
  EXPECT_THAT(frequencies({.top_k = 2}, 40000), near({0, 1 / 3.0, 2 / 3.0, 0}));
  EXPECT_THAT(frequencies({.top_k = 1}, 100), ::testing::ElementsAre(0, 0, DoubleNear(1, 1e-9), 0));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  EXPECT_THAT(frequencies({.top_p = 0.7}, 40000), near({0, 1 / 3.0, 2 / 3.0, 0}));
  EXPECT_THAT(frequencies({.top_p = 0.4}, 100), ::testing::ElementsAre(0, 0, DoubleNear(1, 1e-9), 0));
  EXPECT_THAT(frequencies({.top_p = 0.0}, 100), ::testing::ElementsAre(0, 0, DoubleNear(1, 1e-9), 0));
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Of the two tokens that top_k leaves, the first has 2/3 and reaches 0.6 alone.
  EXPECT_THAT(frequencies({.top_k = 2, .top_p = 0.6}, 100), ::testing::ElementsAre(0, 0, DoubleNear(1, 1e-9), 0));
}

TEST(Sampler, TheLogprobIsOfTheWholeSoftmaxAtTheTemperature) {
  EXPECT_NEAR(sample(kLogits, {.top_k = 1}, 0)->logprob, std::log(0.5), 1e-6);
  EXPECT_NEAR(sample(kLogits, {.temperature = 0.5, .top_k = 1}, 0)->logprob, std::log(16 / 22.0), 1e-6);
  EXPECT_NEAR(sample(kLogits, {.temperature = 0}, 0)->logprob, std::log(0.5), 1e-6);
}

TEST(Sampler, NeverDrawsWhatIsImpossible) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits{never, 1, never};
  EXPECT_EQ(sample(logits, {}, 0)->token, 1);
  EXPECT_EQ(sample(logits, {}, std::nextafter(1.0, 0.0))->token, 1);
}

TEST(Sampler, SaysNothingWhereLogitsAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(sample(std::vector<float>{0, nan, 1}, {}, 0.5));
  EXPECT_FALSE(sample(std::vector<float>{nan, 0, 1}, {.temperature = 0}, 0.5));
  EXPECT_FALSE(sample(std::vector<float>{0, infinite}, {}, 0.5));
  EXPECT_FALSE(sample(std::vector<float>{-infinite, -infinite}, {}, 0.5));
}

TEST(Sampler, UniformDependsOnEveryArgumentAndOnNothingElse) {
  EXPECT_EQ(uniform(1, 2, 3), uniform(1, 2, 3));
  std::set<double> numbers;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::uint64_t choice = 0; choice < 10; ++choice)
      for (std::uint64_t position = 0; position < 10; ++position) numbers.insert(uniform(seed, choice, position));
  EXPECT_EQ(numbers.size(), 1000U);
  EXPECT_GE(*numbers.begin(), 0);
  EXPECT_LT(*numbers.rbegin(), 1);
}

TEST(Sampler, MinPCutsBeforeTopKAndTopP) {
  // 1/8, 2/8, 4/8, 1/8: only the tokens 1 and 2 have nearly half the likeliest one's probability, or more.
  EXPECT_THAT(frequencies({.min_p = 0.49}, 40000), near({0, 1 / 3.0, 2 / 3.0, 0}));
  EXPECT_THAT(frequencies({.min_p = 0.51}, 4000), near({0, 0, 1, 0}));
  EXPECT_THAT(frequencies({.min_p = 0.24}, 40000), near({0.125, 0.25, 0.5, 0.125}));
  // Token 2 alone has two thirds of the rest; of all tokens, it would take 1 and 2.
  EXPECT_THAT(frequencies({.top_p = 0.66, .min_p = 0.49}, 4000), near({0, 0, 1, 0}));
  EXPECT_THAT(frequencies({.top_k = 3, .min_p = 0.49}, 40000), near({0, 1 / 3.0, 2 / 3.0, 0}));
  // min_p applies to the probabilities at the temperature: 1/22, 4/22, 16/22, 1/22.
  EXPECT_THAT(frequencies({.temperature = 0.5, .min_p = 0.26}, 4000), near({0, 0, 1, 0}));
}

TEST(Sampler, LogprobsAreRawOrUnderTheTemperatureWhateverIsCut) {
  SamplingParams params{.temperature = 0.5, .top_k = 1, .min_p = 0.9, .top_logprobs = 3};
  const Sample processed = *sample(kLogits, params, 0.5);
  EXPECT_NEAR(processed.logprob, std::log(16 / 22.0), 1e-6);
  params.logprobs = LogprobsMode::kRaw;
  const Sample raw = *sample(kLogits, params, 0.5);
  EXPECT_EQ(raw.token, 2);
  EXPECT_NEAR(raw.logprob, std::log(0.5), 1e-6);
  ASSERT_EQ(raw.top.size(), 3U);
  EXPECT_EQ(raw.top[0].token, 2);
  EXPECT_EQ(raw.top[0].logprob, raw.logprob);
  EXPECT_EQ(raw.top[1].token, 1);
  EXPECT_EQ(raw.top[2].token, 0) << "the first of equals";
  EXPECT_NEAR(raw.top[2].logprob, std::log(0.125), 1e-6);
}

TEST(Sampler, ScoresATokenWithItsRank) {
  const Sample score = *ref::score(kLogits, 3, {.temperature = 0.5, .logprobs = LogprobsMode::kRaw}, 1);
  EXPECT_EQ(score.token, 3);
  EXPECT_EQ(score.rank, 3) << "like token 0, which is as likely";
  EXPECT_NEAR(score.logprob, std::log(0.125), 1e-6);
  ASSERT_EQ(score.top.size(), 1U);
  EXPECT_EQ(score.top[0].token, 2);
  EXPECT_FALSE(ref::score(std::vector<float>{NAN, NAN}, 0, {}, 0));
}

}  // namespace
}  // namespace bascule::ref
