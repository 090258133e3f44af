#include <bascule/trainer_ref/grpo/rollout/sift.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Rollout rollout(std::vector<std::uint64_t> versions, std::uint64_t epoch = 7, std::string finish_reason = "stop") {
  Rollout made{
      .token_ids = {}, .log_probs = {}, .epochs = {}, .versions = std::move(versions), .finish_reason = {}, .text = {}};
  made.token_ids.resize(made.versions.size(), 1);
  made.epochs.resize(made.versions.size(), epoch);
  made.finish_reason = std::move(finish_reason);
  return made;
}

PublishedVersions published(std::initializer_list<std::uint64_t> versions) {
  PublishedVersions published;
  for (const std::uint64_t version : versions) published.add(7, version);
  return published;
}

TEST(PublishedVersions, AreCountedByThoseThatFollow) {
  const PublishedVersions versions = published({3, 5, 6});
  EXPECT_EQ(versions.newest(), 6);
  EXPECT_EQ(versions.behind(6), 0);
  EXPECT_EQ(versions.behind(3), 2);
  EXPECT_TRUE(versions.has(7, 5));
  EXPECT_FALSE(versions.has(7, 4)) << "aborted, or another's";
  EXPECT_FALSE(versions.has(8, 5));
}

TEST(Sift, KeepsWholeFreshCompletionsOfThisRun) {
  std::vector<Generation> generations(2);
  generations[0].rollouts = {rollout({6}), rollout({3, 6}), rollout({6}, 7, "abort"), rollout({})};
  generations[1].engine = 4;
  generations[1].rollouts = {rollout({5, 6}), rollout({6}, 8), rollout({4}), rollout({0}, 0)};
  const Sifted sifted = sift(generations, published({3, 5, 6}), 1);
  EXPECT_EQ(sifted.kept, 2);
  EXPECT_EQ(sifted.cut, 2);
  EXPECT_EQ(sifted.stale, 1);
  EXPECT_EQ(sifted.foreign, 3);
  EXPECT_THAT(sifted.by, ElementsAre(Pair(4, "version 6 of epoch 8")));
  EXPECT_NEAR(sifted.staleness_mean, 1.0 / 3, 1e-12) << "0, 1, 0";
  EXPECT_THAT(sifted.lags, ElementsAre(1, 1)) << "by the oldest token of each";
  EXPECT_EQ(generations[0].rollouts.size(), 1);
  EXPECT_EQ(generations[1].rollouts.size(), 1);
}

}  // namespace
}  // namespace bascule::ref
