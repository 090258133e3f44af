#include <bascule/trainer_ref/grpo/run/rollout_figures.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using Time = std::chrono::steady_clock::time_point;

Time at_second(int seconds) { return Time(std::chrono::seconds(seconds)); }

Rollout rollout_with(std::vector<std::uint64_t> versions) {
  Rollout made{
      .token_ids = {}, .log_probs = {}, .epochs = {}, .versions = std::move(versions), .finish_reason = {}, .text = {}};
  made.token_ids.resize(made.versions.size(), 1);
  return made;
}

TEST(EngineSpans, AreOfEachEngineAndVersion) {
  std::vector<Generation> generations(3);
  generations[0] = {
      .request = 0, .rollouts = {rollout_with({1, 1, 2})}, .engine = 0, .began = at_second(1), .ended = at_second(3)};
  generations[1] = {
      .request = 1, .rollouts = {rollout_with({1})}, .engine = 0, .began = at_second(2), .ended = at_second(5)};
  generations[2] = {
      .request = 1, .rollouts = {rollout_with({2})}, .engine = 1, .began = at_second(2), .ended = at_second(4)};
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

TEST(TailSeconds, AreThoseFromNineAnswersInTenToTheLast) {
  EXPECT_EQ(tail_seconds({}), 0);
  std::vector<Generation> generations(21);
  for (int i = 0; i < 20; ++i) {
    generations[static_cast<std::size_t>(i)].rollouts = {rollout_with({1})};
    generations[static_cast<std::size_t>(i)].ended = at_second(i == 19 ? 100 : i);
  }
  generations[20].ended = at_second(1000);
  EXPECT_EQ(tail_seconds(generations), 100 - 17) << "the 18th of 20; the lost request does not count";
  EXPECT_EQ(tail_seconds({generations[0]}), 0);
}

}  // namespace
}  // namespace bascule::ref
