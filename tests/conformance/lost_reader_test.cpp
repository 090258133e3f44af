// Readers that are lost: killed, stopped, or too slow. The others go on, and no slot is written while it is read.
#include <csignal>

#include "conformance/suite.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::HasSubstr;

TEST_P(ConformanceProcesses, AKilledReaderIsEvictedAndTheOthersGoOn) {
  listen(hasty());
  const auto a = join_process("a"), b = join_process("b");
  wait_for_workers(2);
  send_complete(2);
  a->process().signal(SIGKILL);
  // Its leases ended with its process: any number of sends find free slots.
  for (int i = 0; i < 4; ++i) {
    const SendReport report = send();
    EXPECT_EQ(entry(report, "b").state, WorkerState::kServing);
    if (report.workers.size() == 1 && i > 0) continue;
    EXPECT_EQ(i, 0) << "evicted once, not again";
    EXPECT_EQ(entry(report, "a").state, WorkerState::kEvicted);
    EXPECT_THAT(entry(report, "a").error, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker a")));
  }
  expect_newest({b.get()});
}

// The reader is stopped, so that it is still connected when the version begins, and dies in the middle of it.
TEST_P(ConformanceProcesses, AReaderKilledInTheMiddleOfASendIsNamedInItsReport) {
  listen();
  const auto a = join_process("a"), b = join_process("b");
  wait_for_workers(2);
  send_complete(2);
  a->process().signal(SIGSTOP);
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  EXPECT_THAT(sender_->wait_async(absl::Milliseconds(1)), StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_));
  a->process().signal(SIGKILL);
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->complete());
  EXPECT_EQ(entry(*report, "a").state, WorkerState::kEvicted);
  EXPECT_THAT(entry(*report, "a").error, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker a")));
  EXPECT_EQ(entry(*report, "b").state, WorkerState::kServing);
  expect_newest({b.get()});
  send_complete(1);
  send_complete(1);  // the slot that it read is free again
}

TEST_P(ConformanceProcesses, AStoppedReaderIsEvictedAndComesBackByItself) {
  listen(hasty());
  const auto a = join_process("a", hasty()), b = join_process("b", hasty());
  wait_for_workers(2);
  send_complete(2);
  const Version served = sender_->version();
  a->process().signal(SIGSTOP);
  const SendReport report = send();
  EXPECT_EQ(entry(report, "a").state, WorkerState::kEvicted);
  EXPECT_THAT(entry(report, "a").error, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("silent")));
  EXPECT_EQ(entry(report, "b").state, WorkerState::kServing);
  expect_newest({b.get()});

  // The slot that it may still read is not written, although it is no longer a member: another takes its place.
  for (int i = 0; i < 4; ++i) send_complete(1);
  expect_newest({b.get()});

  // When it wakes, the version that it read is still whole, and it is served the newest without the trainer.
  a->process().signal(SIGCONT);
  const Observed back = a->wait_for_version(served + 5);
  EXPECT_EQ(back.wrong, "");
  expect_newest({a.get(), b.get()});
  wait_for_workers(2);
  for (int i = 0; i < 4; ++i) send_complete(2);
  expect_newest({a.get(), b.get()});
}

// It answers heartbeats, but its engine reaches no token boundary.
TEST_P(Conformance, ASlowReaderIsEvictedAndItsSlotStaysAsItIs) {
  listen(cat("suspect_after=", absl::ToInt64Milliseconds(patience()), "ms&flip_timeout=",
             absl::ToInt64Milliseconds(silence()), "ms&timeout=", absl::ToInt64Milliseconds(2 * silence()), "ms"));
  const auto slow = join("slow"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const Observed before = slow->report();
  slow->tell("hold");  // it continues to read, and commits nothing
  const SendReport report = send();
  EXPECT_EQ(entry(report, "slow").state, WorkerState::kEvicted);
  EXPECT_THAT(entry(report, "slow").error, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no ack")));
  EXPECT_EQ(entry(report, "b").state, WorkerState::kServing);
  expect_newest({b.get()});

  for (int i = 0; i < 3; ++i) EXPECT_EQ(entry(send(), "b").state, WorkerState::kServing);
  const Observed held =
      slow->wait_until([&](const Observed& now) { return now.checks > before.checks + 20; }, "more checks");
  EXPECT_EQ(held.version, before.version);
  EXPECT_EQ(held.generation, before.generation);
  EXPECT_EQ(held.wrong, "");

  slow->tell("run");
  expect_newest({slow.get(), b.get()});
  wait_for_workers(2);
  send_complete(2);
  expect_newest({slow.get(), b.get()});
}

}  // namespace
}  // namespace bascule::test
