#include <bascule/trainer_ref/grpo/run/progress.h>

#include <gmock/gmock.h>

#include <cmath>

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics step() {
  StepMetrics metrics{.step = 3, .version = 5, .reward_mean = 0.5, .groups = 8};
  metrics.update = {.loss = -0.25, .grad_norm = 1.5, .learning_rate = 1e-6, .updates = 1, .tokens = 12'000};
  metrics.seconds = {.rollout = 6, .score = 0.5, .train = 3, .send = 0.5};
  metrics.rollouts.use = {{"http://a", {.tokens = 7'000'000, .busy_seconds = 7}},
                          {"http://b", {.tokens = 400, .busy_seconds = 2}},
                          {"http://c", {}}};
  return metrics;
}

TEST(Pace, IsTheMeanOfTheLastSteps) {
  Pace pace;
  EXPECT_TRUE(std::isnan(pace.seconds_left(5)));
  pace.begin(100);
  EXPECT_TRUE(std::isnan(pace.seconds_left(5)));
  pace.step_ended(110);
  EXPECT_EQ(pace.seconds_left(5), 50);
  pace.step_ended(130);
  EXPECT_EQ(pace.seconds_left(4), 60);
  for (int i = 1; i <= 20; ++i) pace.step_ended(130 + i);
  EXPECT_EQ(pace.seconds_left(7), 7) << "old steps do not count";
}

TEST(ForPeople, HasAUnitThatFits) {
  EXPECT_EQ(for_people(0.4), "0 s");
  EXPECT_EQ(for_people(99), "99 s");
  EXPECT_EQ(for_people(720), "12 min");
  EXPECT_EQ(for_people(12'000), "3 h 20 min");
}

TEST(ProgressLine, SaysWhatThereIsToSay) {
  StepMetrics metrics = step();
  const std::string plain = progress_line(metrics, 9, 50);
  EXPECT_THAT(plain, AllOf(HasSubstr("step 3/9  v5  reward 0.500  loss -0.2500"), HasSubstr("lr 1e-06"),
                           EndsWith("left 50 s")));
  EXPECT_THAT(plain, Not(AllOf(HasSubstr("kl"), HasSubstr("skipped"), HasSubstr("flat"), HasSubstr("capped"))));
  metrics.update.skipped = 2;
  metrics.update.importance_capped = 0.015;
  metrics.update.entropy = 1.25;
  metrics.flat_groups = 6;
  metrics.eval_reward = 0.25;
  metrics.eval_greedy = 1;
  EXPECT_THAT(progress_line(metrics, 9, kNoNumber),
              AllOf(HasSubstr("skipped 2 updates: loss or gradient not finite"), HasSubstr("capped 1.5 %"),
                    HasSubstr("entropy 1.250"), HasSubstr("flat 6/8"), Not(HasSubstr("left")),
                    HasSubstr("held out: 0.250 sampled, 1.000 greedy")));
}

TEST(ProgressLine, SaysIfNothingIsScored) {
  StepMetrics metrics = step();
  metrics.reward_mean = kNoNumber;
  metrics.update = {};
  metrics.rollouts.staleness_mean = 0;
  metrics.unscored = 64;
  metrics.eval_reward = kNoNumber;
  metrics.eval_greedy = 0.5;
  EXPECT_THAT(progress_line(metrics, 9, kNoNumber),
              AllOf(HasSubstr("v5  reward none  stale"), HasSubstr("roll 6.00 s"), HasSubstr("  unscored 64"),
                    HasSubstr("held out: none sampled, 0.500 greedy"), Not(HasSubstr("nan"))));
}

TEST(FirstStepLine, SaysWhereTheTimeGoesAndWhenTheRunEnds) {
  EXPECT_EQ(
      first_step_line(step(), 9, 60),
      "step 3 took 10.0 s, most of it rollout (60 %): rollout 6.0 s, score 500 ms, train 3.0 s, send 500 ms; 1,000,200 "
      "tokens per second from the engines, 4,000 through the update; 6 steps more take about 60 s");
}

}  // namespace
}  // namespace bascule::ref
