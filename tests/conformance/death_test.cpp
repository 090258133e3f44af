// Death at every step of the protocol: one run per control message of a send.
#include <chrono>
#include <csignal>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

// Kills a trainer at message `step`, for growing steps, until one survives its send: all messages have had their turn.
TEST_P(ConformanceProcesses, ATrainerMayDieAtEveryMessage) {
  const auto a = join_process("a"), b = join_process("b");
  Version newest = 0;
  int step = 1;
  for (bool died = true; died && !HasFailure(); ++step) {
    ASSERT_LT(step, 100);
    SCOPED_TRACE(cat("message ", step));
    Trainer trainer(endpoint(), static_cast<std::uint64_t>(1000 * step), device());
    const Sent sent = trainer.send_until(2);
    EXPECT_GT(sent.version, newest) << "a number that was used is not used again";
    a->wait_for_version(sent.version);
    b->wait_for_version(sent.version);
    EXPECT_EQ(trainer.tell(cat("die ", step)).error, "");
    died = !trainer.try_tell("send").has_value();
    if (!died) trainer.process().signal(SIGKILL);
    for (Worker* worker : {static_cast<Worker*>(a.get()), static_cast<Worker*>(b.get())}) {
      const Observed alone = worker->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
      const Observed later = worker->wait_until([&](const Observed& now) { return now.checks > alone.checks + 2; },
                                                "checks without a trainer");
      EXPECT_EQ(later.wrong, "");
      EXPECT_TRUE(later.generation == sent.generation || later.generation == sent.generation + 1);
      newest = std::max(newest, later.version);
    }
  }
  EXPECT_GT(step, 10) << "a send to two workers has more messages than that";
}

// A send to a reader in place takes seven messages: prepare, ready, sealed, prepared, decided, ack, released. The next
// send may begin before the last of them.
TEST_P(ConformanceProcesses, AReaderMayDieAtEveryMessage) {
  listen();
  const auto survivor = join_process("survivor");
  wait_for_workers(1);
  send_complete(1);
  for (int step = 1; step <= 10 && !HasFailure(); ++step) {
    SCOPED_TRACE(cat("message ", step));
    auto doomed = join_process("doomed");
    wait_for_workers(2);
    doomed->tell(cat("die ", step));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(entry(send(), "survivor").state, WorkerState::kServing);
      expect_newest({survivor.get()});
    }
    for (const Deadline deadline(patience()); doomed->process().alive() && !deadline.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(doomed->process().alive()) << "it was to die in one of three sends";
  }
  send_complete(1);
  expect_newest({survivor.get()});
}

TEST_P(ConformanceProcesses, AReaderMayDieAtEveryMessageOfItsJoining) {
  listen();
  send();
  int step = 1;
  for (bool died = true; died && !HasFailure(); ++step) {
    ASSERT_LT(step, 100);
    SCOPED_TRACE(cat("message ", step));
    auto doomed = start_process("doomed");
    doomed->tell(cat("die ", step));
    doomed->process().lines().write("run");  // it may not live to answer
    for (const Deadline deadline(patience()); !deadline.passed();) {
      died = !doomed->process().alive();
      if (died || sender_->wait_for_workers(1, absl::Milliseconds(5)).ok()) break;
    }
    doomed->process().signal(SIGKILL);
    send();
    send();
  }
  EXPECT_GT(step, 5);
  const auto healthy = join_process("doomed");
  expect_newest({healthy.get()});
}

}  // namespace
}  // namespace bascule::test
