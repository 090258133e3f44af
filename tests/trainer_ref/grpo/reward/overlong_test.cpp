#include <bascule/trainer_ref/grpo/reward/overlong.h>

#include <gmock/gmock.h>

#include <cmath>

#include <bascule/trainer_ref/grpo/reward/advantage.h>

namespace bascule::ref {
namespace {

// DAPO's own values: 16,384 tokens, followed by a cache of 4,096.
TEST(Overlong, GrowsOverTheBufferAsInDapo) {
  const OverlongOptions options{.max_tokens = 20'480, .buffer = 4'096, .penalty = 1};
  EXPECT_EQ(overlong_penalty(1, options), 0);
  EXPECT_EQ(overlong_penalty(16'384, options), 0);
  EXPECT_EQ(overlong_penalty(16'384 + 1'024, options), 0.25);
  EXPECT_EQ(overlong_penalty(20'480, options), 1);
  EXPECT_EQ(overlong_penalty(20'480, {.max_tokens = 20'480, .buffer = 4'096, .penalty = 0.5}), 0.5);
  EXPECT_EQ(overlong_penalty(20'480, {.max_tokens = 20'480}), 0) << "no buffer, no penalty";
}

TEST(Overlong, IsTakenFromEachScore) {
  std::vector<CompletionGroup> groups(2);
  for (const auto& [group, tokens] : {std::pair<std::size_t, std::size_t>{0, 4}, {0, 8}, {1, 6}}) {
    Rollout rollout;
    rollout.reward = 1;
    rollout.token_ids.resize(tokens);
    groups[group].rollouts.push_back(rollout);
  }
  EXPECT_EQ(penalize_overlong(groups, {.max_tokens = 8, .buffer = 4, .penalty = 2}), -1) << "0, 2 and 1 of three";
  EXPECT_EQ(groups[0].rollouts[0].score(), 1);
  EXPECT_EQ(groups[0].rollouts[1].score(), -1);
  EXPECT_EQ(groups[1].rollouts[0].score(), 0);
  EXPECT_TRUE(is_flat(groups[0])) << "completions differ only in length";
  compute_advantages(groups, /*scale=*/false);
  EXPECT_EQ(groups[0].rollouts[0].advantage, 1) << "which is still learned";
}

TEST(Overlong, LeavesUnscoredCompletionsOut) {
  std::vector<CompletionGroup> groups(1);
  groups[0].rollouts.resize(3);
  for (Rollout& rollout : groups[0].rollouts) rollout.token_ids.resize(8);
  groups[0].rollouts[0].reward = 1;
  groups[0].rollouts[1].reward = 1;
  groups[0].rollouts[1].token_ids.resize(4);
  const OverlongOptions options{.max_tokens = 8, .buffer = 4, .penalty = 2};
  EXPECT_EQ(penalize_overlong(groups, options), -1) << "2 and 0";
  EXPECT_EQ(groups[0].rollouts[2].penalty, 0);
  EXPECT_EQ(groups[0].rollouts[2].score(), std::nullopt);
  for (Rollout& rollout : groups[0].rollouts) rollout.reward.reset();
  EXPECT_TRUE(std::isnan(penalize_overlong(groups, options)));
}

}  // namespace
}  // namespace bascule::ref
