#include <bascule/transport/program/signals.h>

#include <gmock/gmock.h>

#include <csignal>

namespace bascule {
namespace {

TEST(StopSignals, AreThoseThatTheProgramWasNotStartedToIgnore) {
  EXPECT_THAT(stop_signals(), testing::ElementsAre(SIGTERM, SIGINT, SIGHUP));
  std::signal(SIGHUP, SIG_IGN);
  EXPECT_THAT(stop_signals(), testing::ElementsAre(SIGTERM, SIGINT));
  std::signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace bascule
