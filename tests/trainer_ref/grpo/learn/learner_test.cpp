#include <bascule/trainer_ref/grpo/learn/learner.h>

#include <cmath>

#include "support.h"
#include "support/status.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::HasSubstr;

std::vector<CompletionGroup> groups() {
  const Sampled sampled;
  std::vector<CompletionGroup> made(2);
  for (std::size_t i = 0; i < 2; ++i) {
    made[i].prompt = sampled.prompts[i];
    made[i].rollouts = {sampled.rollouts[2 * i], sampled.rollouts[2 * i + 1]};
  }
  return made;
}

constexpr OptimizerOptions kOptimizer{.learning_rate = 0.01};

TEST(LearnerTest, LearnsFromAllCompletionsOfAllGroups) {
  const Policy alone = policy(), start = policy();
  Optimizer optimizer(alone.weights(), kOptimizer);
  const UpdateOptions options{.loss = {.beta = 0.1}, .num_iterations = 2};
  const UpdateStatistics expected = update_policy(alone, &start, optimizer, Sampled().rows(), options);
  Learner learner(policy(), kOptimizer, options);
  learner.measure_from(policy());
  const auto found = learner.update_policy(1, groups());
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->loss, expected.loss);
  EXPECT_EQ(found->kl, expected.kl);
  EXPECT_EQ(distance(learner.policy(), alone), 0);
  EXPECT_GT(distance(learner.policy(), start), 0);
  EXPECT_TRUE(learner.is_whole());
  EXPECT_THAT(learner.free_memory(), IsOk());
}

// Whatever the losses are divided by: the numbers of completions, tokens, micro-batches.
TEST(LearnerTest, CompletionsWithoutAnAdvantageAreNotInTheLoss) {
  std::vector<CompletionGroup> with = groups();
  Rollout unscored = Sampled::rollout({9, 9, 9, 9, 9}, 0);
  unscored.advantage.reset();
  with[0].rollouts.insert(with[0].rollouts.begin() + 1, unscored);
  with[1].rollouts.push_back(unscored);
  with.push_back({.prompt = {6}, .rollouts = {unscored, unscored}});
  for (const LossKind kind : {LossKind::kGrpo, LossKind::kBnpo, LossKind::kDrGrpo, LossKind::kDapo}) {
    const UpdateOptions options{
        .loss = {.kind = kind, .beta = 0.1, .max_tokens = 8}, .num_iterations = 2, .mini_batches = 2, .micro_batch = 1};
    Learner all(policy(), kOptimizer, options), scored(policy(), kOptimizer, options);
    for (Learner* learner : {&all, &scored}) learner->measure_from(policy());
    const auto found = all.update_policy(1, with), expected = scored.update_policy(1, groups());
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->loss, expected->loss);
    EXPECT_EQ(found->kl, expected->kl);
    EXPECT_EQ(found->grad_norm, expected->grad_norm);
    EXPECT_EQ(found->tokens, expected->tokens);
    EXPECT_EQ(distance(all.policy(), scored.policy()), 0);
  }
}

TEST(LearnerTest, WithoutAnyAdvantageNothingIsLearned) {
  Learner learner(policy(), kOptimizer, {.loss = {.beta = 0.1}});
  learner.measure_from(policy());
  std::vector<CompletionGroup> unscored = groups();
  for (CompletionGroup& group : unscored)
    for (Rollout& rollout : group.rollouts) rollout.advantage.reset();
  int asked = 0;
  const auto found = learner.update_policy(1, unscored, [&] { return ++asked, absl::OkStatus(); });
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->updates, 0);
  EXPECT_EQ(found->skipped, 0) << "nothing was wrong with it";
  EXPECT_EQ(found->tokens, 0);
  EXPECT_TRUE(std::isnan(found->loss));
  EXPECT_EQ(asked, 0) << "no engine has to yield for it";
  EXPECT_EQ(distance(learner.policy(), policy()), 0);
}

TEST(LearnerTest, AFailedUpdateIsAStatusAndChangesNothing) {
  Learner learner(policy(), kOptimizer, {});
  std::vector<CompletionGroup> bad = groups();
  bad[1].prompt = {4000};  // no such token
  EXPECT_THAT(learner.update_policy(1, bad),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("training on cpu")));
  EXPECT_TRUE(learner.is_whole());
  EXPECT_EQ(distance(learner.policy(), policy()), 0);
}

TEST(LearnerTest, WritesOnlyWhereItMay) {
  Learner learner(policy(), kOptimizer, {.num_iterations = 3});
  const auto nobody_yields = [] { return absl::DeadlineExceededError("an engine reads"); };
  EXPECT_THAT(learner.update_policy(1, groups(), nobody_yields),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("an engine reads")));
  EXPECT_EQ(distance(learner.policy(), policy()), 0);
  EXPECT_TRUE(learner.is_whole());

  int asked = 0;
  const auto twice = [&] { return ++asked > 2 ? absl::DeadlineExceededError("an engine reads") : absl::OkStatus(); };
  EXPECT_THAT(learner.update_policy(1, groups(), twice),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("reads")));
  EXPECT_EQ(asked, 3) << "before each write";
  EXPECT_FALSE(learner.is_whole()) << "two of three iterations are not a step";
}

// A run whose last step is step 4: the rate of step 3 does not depend on earlier updates.
TEST(LearnerTest, TheRateFollowsTheRunsStepAndNotTheStepsThatCounted) {
  OptimizerOptions falls{.learning_rate = 0.01, .schedule = LearningRateSchedule::kLinear, .decay_steps = 8};
  Learner learner(policy(), falls, {.mini_batches = 2});
  std::vector<CompletionGroup> flat = groups();
  for (CompletionGroup& group : flat)
    for (Rollout& rollout : group.rollouts) rollout.advantage = 0;
  ASSERT_THAT(learner.update_policy(1, flat), IsOk());
  ASSERT_THAT(learner.update_policy(2, flat), IsOk());
  const auto third = learner.update_policy(3, groups());
  ASSERT_THAT(third, IsOk());
  EXPECT_NEAR(third->learning_rate, 0.01 * 3 / 8, 1e-12) << "of optimizer step 5, counted from 0";
  falls.decay_steps = 16;  // the run has become longer
  learner.follow(falls);
  EXPECT_NEAR(learner.update_policy(3, groups())->learning_rate, 0.01 * 11 / 16, 1e-12);
}

class LearnerSaved : public Saved {};

TEST_F(LearnerSaved, WritesNoWeightsThatAreNotFinite) {
  Learner learner(policy(), {.learning_rate = 1e30, .weight_decay = 1e30}, {});
  ASSERT_THAT(learner.update_policy(1, groups()), IsOk());
  EXPECT_THAT(
      learner.save(folder_ / "step_1", folder_, {.step = 1}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("checkpoint of step 1: expected finite weights")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "step_1"));
}

TEST_F(LearnerSaved, GoesOnFromWhatItWrote) {
  Learner straight(policy(), kOptimizer, {});
  ASSERT_THAT(straight.update_policy(1, groups()), IsOk());
  ASSERT_THAT(straight.save(folder_ / "step_1", folder_, {.step = 1, .seed = 3}), IsOk());
  const auto state = read_run_state(folder_ / "step_1");
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->step, 1);
  EXPECT_EQ(state->optimizer_steps, 1);

  Policy copy = policy();
  for (const auto& [name, weight] : straight.policy().weights()) copy.weights().at(name).data().copy_(weight.data());
  Learner resumed(std::move(copy), kOptimizer, {});
  ASSERT_THAT(resumed.restore(folder_ / "step_1", *state), IsOk());
  ASSERT_THAT(straight.update_policy(2, groups()), IsOk());
  ASSERT_THAT(resumed.update_policy(2, groups()), IsOk());
  EXPECT_EQ(distance(straight.policy(), resumed.policy()), 0) << "with the moments of the first";
}

}  // namespace
}  // namespace bascule::ref
