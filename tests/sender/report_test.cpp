#include <bascule/sender/report.h>

#include <gmock/gmock.h>

namespace bascule {
namespace {

TEST(SendReport, IsCompleteWhenEveryWorkerServes) {
  SendReport report;
  EXPECT_TRUE(report.complete()) << "nobody was asked";
  report.workers.resize(2);
  EXPECT_TRUE(report.complete());
  for (const WorkerState state :
       {WorkerState::kCatchingUp, WorkerState::kFailed, WorkerState::kEvicted, WorkerState::kMissing}) {
    report.workers[1].state = state;
    EXPECT_FALSE(report.complete()) << to_string(state);
    EXPECT_THAT(report.why_incomplete(), testing::HasSubstr(to_string(state)));
  }
}

TEST(SendReport, IsNotCompleteWithFewerWorkersThanExpected) {
  SendReport report;
  report.expected = 2;
  EXPECT_EQ(report.why_incomplete(), "expected at least 2 workers, found 0");
  report.workers.resize(1);
  EXPECT_FALSE(report.complete());
  report.workers.resize(2);
  EXPECT_TRUE(report.complete());
  EXPECT_EQ(report.why_incomplete(), "");
}

TEST(SendReport, NamesEveryState) {
  EXPECT_STREQ(to_string(WorkerState::kServing), "serving");
  EXPECT_STREQ(to_string(WorkerState::kCatchingUp), "catching up");
  EXPECT_STREQ(to_string(WorkerState::kFailed), "failed");
  EXPECT_STREQ(to_string(WorkerState::kEvicted), "evicted");
  EXPECT_STREQ(to_string(WorkerState::kMissing), "missing");
}

TEST(SendReport, AddsUpItsStages) {
  const StageSeconds seconds{.wait = 1, .pack = 2, .deliver = 4, .prepare = 8, .commit = 16};
  EXPECT_EQ(seconds.total(), 31);
}

}  // namespace
}  // namespace bascule
