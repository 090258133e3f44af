#include <bascule/trainer_ref/grpo/rollout/stopwatch.h>

#include <gmock/gmock.h>

#include <cmath>

namespace bascule::ref {
namespace {

TEST(Stopwatch, GivesEachPhaseWhatPassedSinceTheLastOne) {
  using namespace std::chrono_literals;
  Stopwatch::Time now{};
  Stopwatch watch([&now] { return now; });
  now += 2s;
  watch.end("rollout");
  now += 500ms;
  watch.end("score");
  now += 1s;
  watch.end("rollout");
  EXPECT_EQ(watch.seconds("rollout"), 3);
  EXPECT_EQ(watch.seconds("score"), 0.5);
  EXPECT_TRUE(std::isnan(watch.seconds("send")));
}

}  // namespace
}  // namespace bascule::ref
