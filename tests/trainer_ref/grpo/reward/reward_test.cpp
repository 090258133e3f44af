#include <bascule/trainer_ref/grpo/reward/reward.h>

#include <gmock/gmock.h>

#include <cmath>

#include "finished_rollout.h"

namespace bascule::ref {
namespace {

Problem problem(std::string answer, nlohmann::json columns = nlohmann::json::object()) {
  return {.prompt = "?", .answer = std::move(answer), .columns = std::move(columns)};
}

TEST(Reward, ExactMatchIgnoresSurroundingBlanksOnly) {
  EXPECT_EQ(exact_match(problem("73"), finished_rollout(" 73\n")), 1);
  EXPECT_EQ(exact_match(problem("73"), finished_rollout("7 3")), 0);
  EXPECT_EQ(exact_match(problem("73"), finished_rollout("")), 0);
  EXPECT_TRUE(std::isnan(exact_match(problem(" "), finished_rollout("")))) << "an empty text is not an answer";
}

TEST(Reward, NumberMatchComparesTheLastNumberAsANumber) {
  EXPECT_EQ(number_match(problem("-3.5"), finished_rollout("5 less 8.5 is -3.50.")), 1);
  EXPECT_EQ(number_match(problem("12"), finished_rollout("12, no: 13")), 0);
  EXPECT_EQ(number_match(problem("12"), finished_rollout("no idea")), 0);
  EXPECT_EQ(number_match(problem("5"), finished_rollout("10-5")), 0) << "a sign belongs to its number";
  EXPECT_EQ(number_match(problem("1234"), finished_rollout("It is 1,234.")), 1);
  EXPECT_EQ(number_match(problem("1,234"), finished_rollout("It is 1234")), 1);
  EXPECT_EQ(number_match(problem("234"), finished_rollout("It is 1,234.")), 0);
  EXPECT_EQ(number_match(problem("3"), finished_rollout("1,2,3")), 1) << "a list";
  EXPECT_EQ(number_match(problem("4"), finished_rollout("3/4")), 1) << "fractions are for math_match";
  for (const char* text : {"twelve", "", "nan", "inf", "12 apples", "1,23", "3/4"})
    EXPECT_TRUE(std::isnan(number_match(problem(text), finished_rollout("12")))) << text;
}

TEST(Reward, MathMatchReadsTheFinalAnswer) {
  const Problem gsm8k = problem("She has 1,000 + 234 = <<1000+234=1234>>1,234.\n#### 1,234");
  EXPECT_EQ(math_match(gsm8k, finished_rollout("So \\boxed{1234} of 2000")), 1);
  EXPECT_EQ(math_match(gsm8k, finished_rollout("The answer is 234.")), 0);
  EXPECT_EQ(math_match(problem("\\text{Monday}"), finished_rollout("\\boxed{Monday}")), 1);
  EXPECT_TRUE(std::isnan(math_match(problem(" "), finished_rollout("\\boxed{}"))));
}

TEST(Reward, FinishedAsksForAnEnd) {
  EXPECT_EQ(finished(problem("1"), finished_rollout("1", "stop")), 1);
  EXPECT_EQ(finished(problem("1"), finished_rollout("1", "length")), 0);
}

TEST(Reward, WithinLengthReadsAColumnOfTheDataFile) {
  EXPECT_EQ(within_length(problem("1", {{"max_bytes", 3}}), finished_rollout("abc")), 1);
  EXPECT_EQ(within_length(problem("1", {{"max_bytes", 3}}), finished_rollout("abcd")), 0);
  EXPECT_TRUE(std::isnan(within_length(problem("1"), finished_rollout("abc"))));
}

TEST(Reward, AFunctionScoresEachCompletionAlone) {
  const Problem sum = problem("73");
  const Rollout right = finished_rollout("73"), wrong = finished_rollout("37");
  const auto scores =
      reward_of(exact_match)->score(std::vector<Scored>{{&sum, &right}, {&sum, &wrong}, {&sum, &right}});
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_THAT(*scores, ::testing::ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace bascule::ref
