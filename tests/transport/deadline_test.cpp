#include <bascule/transport/deadline.h>

#include <gtest/gtest.h>

namespace bascule {
namespace {

TEST(Deadline, LiesItsTimeoutAhead) {
  const Clock::time_point before = Clock::now();
  const Deadline deadline(absl::Minutes(1));
  EXPECT_GE(deadline.at(), before + std::chrono::minutes(1));
  EXPECT_LE(deadline.at(), Clock::now() + std::chrono::minutes(1));
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left(), absl::ZeroDuration());
  EXPECT_LE(deadline.left(), absl::Minutes(1));
}

TEST(Deadline, ThatPassedHasNothingLeft) {
  const Deadline deadline(Clock::now() - std::chrono::seconds(2));
  EXPECT_TRUE(deadline.passed());
  EXPECT_LE(deadline.left(), absl::Seconds(-2));
  EXPECT_TRUE(Deadline(absl::ZeroDuration()).passed());
}

TEST(Deadline, TakesDurationsThatNoClockHolds) {
  EXPECT_GT(Deadline(absl::InfiniteDuration()).left(), absl::Hours(24 * 364));
  for (const absl::Duration timeout : {-absl::InfiniteDuration(), absl::Seconds(-1)}) {
    const Deadline deadline(timeout);
    EXPECT_TRUE(deadline.passed());
    EXPECT_LE(deadline.left(), absl::ZeroDuration());
  }
}

TEST(Deadline, SecondsBetweenHaveASign) {
  const Clock::time_point at = Clock::now();
  EXPECT_DOUBLE_EQ(seconds_between(at, at + std::chrono::milliseconds(1500)), 1.5);
  EXPECT_DOUBLE_EQ(seconds_between(at, at - std::chrono::milliseconds(250)), -0.25);
}

}  // namespace
}  // namespace bascule
