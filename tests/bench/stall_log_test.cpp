#include <bascule/bench/stall_log.h>

#include <gtest/gtest.h>

namespace bascule::bench {
namespace {

Boundary boundary(bool flipped, double commit, double step) {
  return {.flipped = flipped, .commit = {commit, commit / 2}, .step = {step, step / 2}};
}

void add_ordinary(StallLog& log, std::size_t count, double step) {
  for (std::size_t i = 0; i < count; ++i) log.add(boundary(false, 0.1, step));
}

TEST(StallLog, AStallIsTheCommitAndWhatTheNextStepLost) {
  StallLog log;
  log.add(boundary(true, 3, 15));
  add_ordinary(log, StallLog::kBaselineSteps, 10);
  EXPECT_TRUE(log.flips().empty());  // not before the ordinary boundary
  log.add(boundary(false, 0.5, 11));
  ASSERT_EQ(log.flips().size(), 1u);
  EXPECT_DOUBLE_EQ(log.flips()[0].commit.wall_seconds, 3);
  EXPECT_DOUBLE_EQ(log.flips()[0].lost.wall_seconds, 5);
  EXPECT_DOUBLE_EQ(log.flips()[0].commit.cpu_seconds, 1.5);
  EXPECT_DOUBLE_EQ(log.flips()[0].lost.cpu_seconds, 2.5);
  ASSERT_EQ(log.ordinary().size(), 1u);
  EXPECT_DOUBLE_EQ(log.ordinary()[0].commit.wall_seconds, 0.5);
  EXPECT_DOUBLE_EQ(log.ordinary()[0].lost.wall_seconds, 1);
}

TEST(StallLog, AFasterStepLosesNothing) {
  StallLog log;
  log.add(boundary(true, 3, 8));
  add_ordinary(log, StallLog::kStepsToSettle - 1, 10);
  ASSERT_EQ(log.flips().size(), 1u);
  EXPECT_DOUBLE_EQ(log.flips()[0].lost.wall_seconds, 0);
}

TEST(StallLog, StepsWithoutAFlipBeforeThemAreNotCounted) {
  StallLog log;
  add_ordinary(log, 100, 10);
  EXPECT_TRUE(log.flips().empty());
  EXPECT_TRUE(log.ordinary().empty());
}

TEST(StallLog, AFlipWithinTheBaselineBeginsAnew) {
  StallLog log;
  log.add(boundary(true, 3, 15));
  add_ordinary(log, 3, 10);
  log.add(boundary(true, 4, 12));
  add_ordinary(log, StallLog::kStepsToSettle - 1, 10);
  ASSERT_EQ(log.flips().size(), 1u);
  EXPECT_DOUBLE_EQ(log.flips()[0].commit.wall_seconds, 4);
}

}  // namespace
}  // namespace bascule::bench
