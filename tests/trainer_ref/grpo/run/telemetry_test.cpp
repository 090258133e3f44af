#include <bascule/trainer_ref/grpo/run/telemetry.h>

#include <gmock/gmock.h>

#include <cmath>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Rollout worth(std::optional<double> reward, std::size_t tokens) {
  Rollout rollout;
  rollout.reward = reward;
  rollout.token_ids.resize(tokens, 1);
  return rollout;
}

// A clock that advances by a second per call.
Stopwatch ticking() {
  return Stopwatch([now = Stopwatch::Time()]() mutable { return now += std::chrono::seconds(1); });
}

TEST(StepTelemetry, IsTheStepsLine) {
  std::vector<CompletionGroup> groups(2);
  groups[0].rollouts = {worth(1, 2), worth(0, 4)};
  groups[1].rollouts = {worth(0.5, 3)};
  groups[0].rollouts[1].finish_reason = "length";
  StepTelemetry telemetry(5, ticking());
  telemetry.rolled_out({.dropped = 1, .staleness_mean = 0.25, .lags = {2, 1}});
  telemetry.scored(groups, {{"exact_match", 0.5}});
  telemetry.updated({.loss = -0.5, .grad_norm = 3, .skipped = 1});
  SendReport report;
  report.bytes = 12;
  telemetry.sent(std::move(report));
  const StepMetrics line = telemetry.metrics(/*version=*/8);
  EXPECT_EQ(line.step, 5);
  EXPECT_EQ(line.version, 8);
  EXPECT_EQ(line.rollouts.dropped, 1);
  EXPECT_EQ(line.rollouts.staleness_mean, 0.25);
  EXPECT_NEAR(line.lag_mean(), 1.0 / 3, 1e-12);
  EXPECT_EQ(line.groups, 2);
  EXPECT_EQ(line.flat_groups, 1) << "the group of a single completion";
  EXPECT_EQ(line.reward_mean, 0.5);
  EXPECT_NEAR(line.reward_std, std::sqrt(1.0 / 6), 1e-12) << "1, 0 and 0.5";
  EXPECT_EQ(line.completion_tokens_mean, 3);
  EXPECT_NEAR(line.cut, 1.0 / 3, 1e-12);
  EXPECT_THAT(line.rewards, ElementsAre(Pair("exact_match", 0.5)));
  EXPECT_EQ(line.update.loss, -0.5);
  EXPECT_EQ(line.update.grad_norm, 3);
  EXPECT_EQ(line.update.skipped, 1);
  EXPECT_EQ(line.send->bytes, 12);
  for (const double seconds : {line.seconds.rollout, line.seconds.score, line.seconds.train, line.seconds.send})
    EXPECT_EQ(seconds, 1);
}

TEST(StepTelemetry, UnscoredCompletionsAreCountedAndNotInTheMean) {
  std::vector<CompletionGroup> groups(2);
  groups[0].rollouts = {worth(1, 2), worth(std::nullopt, 8), worth(0, 2)};
  groups[1].rollouts = {worth(std::nullopt, 8), worth(0.5, 5)};
  StepTelemetry telemetry(5, ticking());
  telemetry.scored(groups, {});
  const StepMetrics line = telemetry.metrics(8);
  EXPECT_EQ(line.reward_mean, 0.5);
  EXPECT_NEAR(line.reward_std, std::sqrt(1.0 / 6), 1e-12) << "1, 0 and 0.5";
  EXPECT_EQ(line.unscored, 2);
  EXPECT_EQ(line.flat_groups, 1);
  EXPECT_EQ(line.completion_tokens_mean, 5) << "of all";

  groups[0].rollouts = {worth(std::nullopt, 1)};
  StepTelemetry none(5, ticking());
  none.scored(std::span(groups).first(1), {});
  EXPECT_TRUE(std::isnan(none.metrics(8).reward_mean) && std::isnan(none.metrics(8).reward_std));
}

TEST(StepTelemetry, GroupsThatAreReplacedTakeTimeToRollOut) {
  StepTelemetry telemetry(5, ticking());
  telemetry.rolled_out({});
  telemetry.replaced(3);
  EXPECT_EQ(telemetry.metrics(8).replaced_groups, 3);
  EXPECT_EQ(telemetry.metrics(8).seconds.rollout, 2);
}

TEST(StepTelemetry, AStepThatSendsNothingTakesNoTimeToSend) {
  StepTelemetry telemetry(5, ticking());
  telemetry.rolled_out({});
  EXPECT_EQ(telemetry.metrics(8).seconds.send, 0);
  EXPECT_FALSE(telemetry.metrics(8).send.has_value());
}

}  // namespace
}  // namespace bascule::ref
