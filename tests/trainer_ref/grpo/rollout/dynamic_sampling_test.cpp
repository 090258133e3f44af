#include <bascule/trainer_ref/grpo/rollout/dynamic_sampling.h>

#include <gmock/gmock.h>

#include <bascule/trainer_ref/grpo/reward/advantage.h>

namespace bascule::ref {
namespace {

using ::testing::Not;

CompletionGroup group(std::vector<std::optional<double>> rewards) {
  CompletionGroup made;
  for (const std::optional<double> reward : rewards) {
    made.rollouts.emplace_back();
    made.rollouts.back().reward = reward;
  }
  return made;
}

TEST(DynamicSampling, TakesTheGroupsThatTeachSomething) {
  std::vector<CompletionGroup> groups{group({1, 1}), group({0, 1}), group({0, 0}), group({0.5}), group({2, 1})};
  const std::vector<CompletionGroup> varied = take_varied(groups);
  ASSERT_EQ(varied.size(), 2);
  EXPECT_EQ(varied[0].rollouts[1].reward, 1);
  EXPECT_EQ(varied[1].rollouts[0].reward, 2) << "in their order";
  EXPECT_EQ(groups.size(), 3);
  for (const CompletionGroup& flat : groups) EXPECT_TRUE(is_flat(flat));
}

TEST(DynamicSampling, OnlyScoredCompletionsMakeAGroupVary) {
  std::vector<CompletionGroup> groups{group({std::nullopt, 1, 1}), group({std::nullopt, 1, 0}),
                                      group({std::nullopt, 1}), group({std::nullopt, std::nullopt})};
  const std::vector<CompletionGroup> varied = take_varied(groups);
  ASSERT_EQ(varied.size(), 1);
  EXPECT_EQ(varied[0].rollouts.size(), 3);
  EXPECT_EQ(varied[0].rollouts[2].reward, 0);
}

TEST(DynamicSampling, FurtherProblemsAreOthersEachTime) {
  std::set<std::size_t> asked{0, 1, 2, 3};
  std::vector<std::size_t> all;
  for (const std::size_t expected : {4, 2, 0}) {  // of ten
    const std::vector<std::size_t> more = further_prompts(10, 4, 7, 1, asked);
    EXPECT_EQ(more.size(), expected);
    for (const std::size_t i : more) EXPECT_TRUE(asked.insert(i).second) << i << " was asked before";
    all.insert(all.end(), more.begin(), more.end());
  }
  EXPECT_EQ(asked.size(), 10);
  EXPECT_EQ(further_prompts(10, 6, 7, 1, {0, 1, 2, 3}), all) << "a resumed run uses the same";
  EXPECT_THAT(further_prompts(10, 6, 7, 2, {0, 1, 2, 3}), Not(::testing::ElementsAreArray(all))) << "another step";
}

}  // namespace
}  // namespace bascule::ref
