#include <bascule/trainer_ref/grpo/reward/overlong.h>

#include <gmock/gmock.h>

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
  EXPECT_EQ(penalize_overlong({}, {}), 0);
}

}  // namespace
}  // namespace bascule::ref
