#include <bascule/trainer_ref/grpo/sift.h>

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
  EXPECT_EQ(generations[0].rollouts.size(), 1);
  EXPECT_EQ(generations[1].rollouts.size(), 1);
}

TEST(EngineSpans, AreOfEachEngineAndVersion) {
  using Time = std::chrono::steady_clock::time_point;
  const auto at = [](int seconds) { return Time(std::chrono::seconds(seconds)); };
  std::vector<Generation> generations(3);
  generations[0] = {.request = 0, .rollouts = {rollout({1, 1, 2})}, .engine = 0, .began = at(1), .ended = at(3)};
  generations[1] = {.request = 1, .rollouts = {rollout({1})}, .engine = 0, .began = at(2), .ended = at(5)};
  generations[2] = {.request = 1, .rollouts = {rollout({2})}, .engine = 1, .began = at(2), .ended = at(4)};
  const std::vector<EngineSpan> spans = engine_spans(generations, {"a", "b"}, [](Time time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  });
  ASSERT_EQ(spans.size(), 3);
  EXPECT_EQ(spans[0].engine, "a");
  EXPECT_EQ(spans[0].tokens, 3);
  EXPECT_EQ(spans[0].begin_seconds, 1);
  EXPECT_EQ(spans[0].end_seconds, 5);
  EXPECT_EQ(spans[1].version, 2);
  EXPECT_EQ(spans[2].engine, "b");
}

}  // namespace
}  // namespace bascule::ref
