#include <bascule/trainer_ref/grpo/reward/advantage.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ne;
using ::testing::Pointwise;

// The constants are printed by learn/loss_numbers.py.
const std::vector<double> kRewards{1, 0, 0, 1, 0, 0.5};
const std::vector<std::optional<double>> kScores{1, 0, 1, 0, 0.5};

TEST(Advantage, IsTheRewardLessTheMeanOverTheDeviation) {
  EXPECT_THAT(advantages(kRewards, /*scale=*/true),
              Pointwise(DoubleNear(1e-12), {1.1863698011172374, -0.8474070007980269, -0.8474070007980269,
                                            1.1863698011172374, -0.8474070007980269, 0.16948140015960533}));
}

TEST(Advantage, WithoutScalingIsTheRewardLessTheMean) {
  EXPECT_THAT(advantages(kRewards, /*scale=*/false),
              Pointwise(DoubleNear(1e-12), {0.5833333333333333, -0.4166666666666667, -0.4166666666666667,
                                            0.5833333333333333, -0.4166666666666667, 0.08333333333333331}));
}

TEST(Advantage, IsZeroWhereAllDidEquallyWell) {
  EXPECT_THAT(advantages(std::vector<double>{0.5, 0.5, 0.5}, true), ElementsAre(0, 0, 0));
  EXPECT_THAT(advantages(std::vector<double>{0.5}, true), ElementsAre(0));
}

TEST(Advantage, IsComputedWithinEachGroup) {
  std::vector<CompletionGroup> groups(2);
  for (CompletionGroup& group : groups) group.rollouts.resize(2);
  groups[0].rollouts[0].reward = 1;
  groups[0].rollouts[1].reward = 0;
  groups[1].rollouts[0].reward = 5;
  groups[1].rollouts[1].reward = 3;
  compute_advantages(groups, /*scale=*/false);
  EXPECT_EQ(groups[0].rollouts[0].advantage, 0.5);
  EXPECT_EQ(groups[0].rollouts[1].advantage, -0.5);
  EXPECT_EQ(groups[1].rollouts[0].advantage, 1);
  EXPECT_EQ(groups[1].rollouts[1].advantage, -1);
}

CompletionGroup with_rewards(const std::vector<std::optional<double>>& rewards) {
  CompletionGroup group;
  group.rollouts.resize(rewards.size());
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    group.rollouts[i].reward = rewards[i];
    group.rollouts[i].advantage = 7;  // of an earlier computation
  }
  return group;
}

std::vector<std::optional<double>> advantages_in(const CompletionGroup& group) {
  std::vector<std::optional<double>> values;
  for (const Rollout& rollout : group.rollouts) values.push_back(rollout.advantage);
  return values;
}

TEST(Advantage, UnscoredCompletionsTakeNoPartInMeanAndDeviation) {
  std::vector<CompletionGroup> groups{with_rewards({1, std::nullopt, 0, 1, std::nullopt, 0, 0.5}),
                                      with_rewards(kScores)};
  compute_advantages(groups, /*scale=*/true);
  const std::vector<std::optional<double>> found = advantages_in(groups[0]), alone = advantages_in(groups[1]);
  EXPECT_THAT(found, ElementsAre(alone[0], std::nullopt, alone[1], alone[2], std::nullopt, alone[3], alone[4]));
  EXPECT_THAT(alone, Each(Ne(std::nullopt)));
  // 0.5 is their mean, and sqrt((4 · 0.25 + 0) / 4) = 0.5 their deviation.
  EXPECT_DOUBLE_EQ(*found[0], 0.5 / (0.5 + 1e-4));
  EXPECT_DOUBLE_EQ(*found[2], -0.5 / (0.5 + 1e-4));
  EXPECT_EQ(found[6], 0);

  compute_advantages(groups, /*scale=*/false);
  EXPECT_THAT(advantages_in(groups[0]), ElementsAre(0.5, std::nullopt, -0.5, 0.5, std::nullopt, -0.5, 0));
}

TEST(Advantage, NeedsTwoScoredCompletions) {
  std::vector<CompletionGroup> groups{with_rewards({std::nullopt, 1, std::nullopt}),
                                      with_rewards({std::nullopt, std::nullopt}), with_rewards({1})};
  for (const CompletionGroup& group : groups) EXPECT_TRUE(is_flat(group));
  compute_advantages(groups, /*scale=*/true);
  for (const CompletionGroup& group : groups) EXPECT_THAT(advantages_in(group), Each(std::nullopt));
}

TEST(Advantage, AGroupIsFlatByItsScoredCompletions) {
  EXPECT_TRUE(is_flat(with_rewards({std::nullopt, 1, 1})));
  EXPECT_FALSE(is_flat(with_rewards({1, std::nullopt, 0})));
  EXPECT_TRUE(is_flat(with_rewards({0, std::nullopt, 0}))) << "no reward is not a reward of 0";
}

}  // namespace
}  // namespace bascule::ref
