// What peers cause again and again is logged with a limit, and nothing is lost without a count.
#include <bascule/transport/log_limit.h>

#include <gmock/gmock.h>

#include <bascule/transport/status.h>

namespace bascule {
namespace {

using testing::Optional;

class LogLimitTest : public testing::Test {
 protected:
  std::optional<std::string> pass(const std::string& line) { return limit_.pass(line, now_); }
  int passed(const std::string& line, int times) {
    int passed = 0;
    for (int i = 0; i < times; ++i) passed += pass(line) ? 1 : 0;
    return passed;
  }

  LogLimit limit_;
  Clock::time_point now_{};
};

TEST_F(LogLimitTest, TheSameLineComesThreeTimesThenOnceAMinuteWithACount) {
  EXPECT_EQ(passed("refused a", 1000), 3);
  for (int minute = 0; minute < 3; ++minute) {
    now_ += std::chrono::minutes(1);
    const int left_out = minute == 0 ? 997 : 999;
    EXPECT_THAT(pass("refused a"), Optional(cat("refused a; and ", left_out, " more such lines since the last one")));
    EXPECT_EQ(passed("refused a", 999), 0);
  }
}

TEST_F(LogLimitTest, AnotherLineIsNotHeldBack) {
  EXPECT_EQ(passed("refused a", 1000), 3);
  EXPECT_THAT(pass("refused b"), Optional(std::string("refused b")));
}

TEST_F(LogLimitTest, AfterAPauseALineIsLikeNew) {
  EXPECT_EQ(passed("refused a", 3), 3);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(passed("refused a", 10), 3);
}

TEST_F(LogLimitTest, LinesThatAlwaysDifferShareALimit) {
  int lines = 0;
  for (int i = 0; i < 10'000; ++i) lines += pass(cat("refused ", i)) ? 1 : 0;
  EXPECT_EQ(lines, 2000);
  now_ += std::chrono::seconds(10);
  EXPECT_THAT(pass("refused x"),
              Optional(std::string("refused x; and 8000 other lines about peers were left out before this one")));
  EXPECT_FALSE(pass("refused y"));
}

}  // namespace
}  // namespace bascule
