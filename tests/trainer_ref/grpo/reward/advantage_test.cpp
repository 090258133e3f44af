#include <bascule/trainer_ref/grpo/reward/advantage.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

// The constants are printed by learn/loss_numbers.py.
const std::vector<double> kRewards{1, 0, 0, 1, 0, 0.5};

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
  groups[1].rollouts[0].reward = 5;
  groups[1].rollouts[1].reward = 3;
  compute_advantages(groups, /*scale=*/false);
  EXPECT_EQ(groups[0].rollouts[0].advantage, 0.5);
  EXPECT_EQ(groups[0].rollouts[1].advantage, -0.5);
  EXPECT_EQ(groups[1].rollouts[0].advantage, 1);
  EXPECT_EQ(groups[1].rollouts[1].advantage, -1);
}

}  // namespace
}  // namespace bascule::ref
