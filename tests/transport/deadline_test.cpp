#include <bascule/transport/deadline.h>

#include <gtest/gtest.h>

#include <variant>

#include <bascule/transport/turn.h>

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

// The sum of a later time and such a duration lay in the past.
TEST(Deadline, NoDurationMovesATimeBack) {
  const Clock::time_point in_a_year = Clock::now() + std::chrono::hours(24 * 365);
  for (const absl::Duration length : {absl::Hours(9'999'999), absl::Hours(2'000'000), absl::InfiniteDuration()}) {
    EXPECT_GT(in_a_year + on_clock(length), in_a_year);
    EXPECT_GT((Turn<std::variant<int>>{.now = in_a_year}.in(length)), in_a_year);
  }
  EXPECT_EQ(on_clock(absl::Seconds(-1)), Clock::duration::zero());
  EXPECT_EQ(on_clock(-absl::InfiniteDuration()), Clock::duration::zero());
  EXPECT_EQ(on_clock(absl::Milliseconds(1500)), std::chrono::milliseconds(1500));
}

TEST(Deadline, SecondsBetweenHaveASign) {
  const Clock::time_point at = Clock::now();
  EXPECT_DOUBLE_EQ(seconds_between(at, at + std::chrono::milliseconds(1500)), 1.5);
  EXPECT_DOUBLE_EQ(seconds_between(at, at - std::chrono::milliseconds(250)), -0.25);
}

}  // namespace
}  // namespace bascule
