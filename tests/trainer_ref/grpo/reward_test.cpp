#include <bascule/trainer_ref/grpo/reward.h>

#include <gmock/gmock.h>

#include <cmath>

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

Rollout rollout(std::string text, std::string finish_reason = "stop") {
  Rollout result;
  result.text = std::move(text);
  result.finish_reason = std::move(finish_reason);
  return result;
}
Problem problem(std::string answer, nlohmann::json columns = nlohmann::json::object()) {
  return {.prompt = "?", .answer = std::move(answer), .columns = std::move(columns)};
}

TEST(Reward, ExactMatchIgnoresSurroundingBlanksOnly) {
  EXPECT_EQ(exact_match(problem("73"), rollout(" 73\n")), 1);
  EXPECT_EQ(exact_match(problem("73"), rollout("7 3")), 0);
  EXPECT_EQ(exact_match(problem("73"), rollout("")), 0);
}

TEST(Reward, NumberMatchComparesTheLastNumberAsANumber) {
  EXPECT_EQ(number_match(problem("-3.5"), rollout("5 less 8.5 is -3.50.")), 1);
  EXPECT_EQ(number_match(problem("12"), rollout("12, no: 13")), 0);
  EXPECT_EQ(number_match(problem("12"), rollout("no idea")), 0);
  EXPECT_EQ(number_match(problem("5"), rollout("10-5")), 0) << "a sign belongs to its number";
  EXPECT_EQ(number_match(problem("1234"), rollout("It is 1,234.")), 1);
  EXPECT_EQ(number_match(problem("1,234"), rollout("It is 1234")), 1);
  EXPECT_EQ(number_match(problem("234"), rollout("It is 1,234.")), 0);
  EXPECT_EQ(number_match(problem("3"), rollout("1,2,3")), 1) << "a list";
  EXPECT_EQ(number_match(problem("4"), rollout("3/4")), 1) << "fractions are for math_match";
  for (const char* text : {"twelve", "", "nan", "inf", "12 apples", "1,23", "3/4"})
    EXPECT_TRUE(std::isnan(number_match(problem(text), rollout("12")))) << text;
}

TEST(Reward, MathMatchReadsTheFinalAnswer) {
  const Problem gsm8k = problem("She has 1,000 + 234 = <<1000+234=1234>>1,234.\n#### 1,234");
  EXPECT_EQ(math_match(gsm8k, rollout("So \\boxed{1234} of 2000")), 1);
  EXPECT_EQ(math_match(gsm8k, rollout("The answer is 234.")), 0);
  EXPECT_EQ(math_match(problem("\\text{Monday}"), rollout("\\boxed{Monday}")), 1);
  EXPECT_TRUE(std::isnan(math_match(problem(" "), rollout("\\boxed{}"))));
}

TEST(Reward, FinishedAsksForAnEnd) {
  EXPECT_EQ(finished(problem("1"), rollout("1", "stop")), 1);
  EXPECT_EQ(finished(problem("1"), rollout("1", "length")), 0);
}

TEST(Reward, WithinLengthReadsAColumnOfTheDataFile) {
  EXPECT_EQ(within_length(problem("1", {{"max_bytes", 3}}), rollout("abc")), 1);
  EXPECT_EQ(within_length(problem("1", {{"max_bytes", 3}}), rollout("abcd")), 0);
  EXPECT_TRUE(std::isnan(within_length(problem("1"), rollout("abc"))));
}

TEST(Reward, SeveralAreWeightedAndNaNIsLeftOut) {
  const auto rewards = parse_rewards("exact_match, finished=0.25,within_length=8");
  ASSERT_TRUE(rewards.ok()) << rewards.status();
  EXPECT_EQ(total_reward(*rewards, problem("73"), rollout("73")), 1.25);
  EXPECT_EQ(total_reward(*rewards, problem("73"), rollout("99", "length")), 0);
  EXPECT_EQ(total_reward(*rewards, problem("73", {{"max_bytes", 2}}), rollout("99", "length")), 8);
  const auto only_nan = parse_rewards("within_length");
  EXPECT_EQ(total_reward(*only_nan, problem("73"), rollout("99")), 0);
}

TEST(Reward, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(parse_rewards("exact_mach").status().message(), HasSubstr("did you mean exact_match?"));
  EXPECT_THAT(parse_rewards("").status().message(), HasSubstr("known: exact_match"));
  EXPECT_THAT(parse_rewards("exact_match=lots").status().message(), HasSubstr("expected a number"));
  EXPECT_THAT(parse_rewards("exact_match=nan").status().message(), HasSubstr("expected a number"));
  EXPECT_THAT(parse_rewards("exact_match=-2e6").status().message(), HasSubstr("a number from -1e6 to 1e6"));
  EXPECT_THAT(parse_rewards("exact_match,finished, exact_match=2").status().message(),
              HasSubstr("reward \"exact_match\" stands twice; give each once"));
}

}  // namespace
}  // namespace bascule::ref
