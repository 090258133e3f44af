// A sender and its readers give back all that they held of the system.
#include <filesystem>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/footprint.h"

namespace bascule::test {
namespace {

// Waits, since a thread that was joined stays in /proc for a moment, as when `before` was taken.
void expect_back_within(const Footprint& before) {
  Footprint now = Footprint::now();
  for (const Deadline deadline(patience()); !now.within(before) && !deadline.passed(); now = Footprint::now())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(now.within(before)) << "now " << now << ", before " << before;
}

TEST_P(Conformance, NothingStaysOfASenderAndItsReaders) {
  if (!leaves_nothing()) GTEST_SKIP() << "NCCL keeps descriptors";
  {
    listen();  // makes what is made once per process
    const auto a = join("a");
    wait_for_workers(1);
    send_complete(1);
    sender_.reset();
  }
  const Footprint before = Footprint::now();
  for (int round = 0; round < 3; ++round) {
    listen();
    auto a = join("a"), b = join("b");
    wait_for_workers(2);
    send_complete(2);
    send_complete(2);
    EXPECT_GT(Footprint::now().mappings, before.mappings);
    if (round == 0) sender_.reset();  // the sender ends first in this round, last in the others
    a = nullptr;
    b = nullptr;
    sender_.reset();
    expect_back_within(before);
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "endpoint" / "control.sock"));
  }
}

TEST_P(Conformance, ReadersThatComeAndGoLeaveNothingWithTheSender) {
  if (!leaves_nothing()) GTEST_SKIP() << "NCCL keeps descriptors";
  listen();
  send();
  const auto stays = join("stays");
  expect_newest({stays.get()});
  const Footprint before = with_what_the_scheme_keeps(Footprint::now(), 5);
  for (int i = 0; i < 5; ++i) {
    auto comes = join("comes");
    expect_newest({comes.get(), stays.get()});
    send();
    comes = nullptr;
    expect_back_within(before);
  }
}

// Destruction gives up a pending send and a loan, and the readers continue to serve.
TEST_P(Conformance, ASenderMayGoInTheMiddleOfAnything) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  const std::uint64_t served = generation_;
  a->tell("hold");
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  sender_.reset();
  const Observed alone = a->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
  EXPECT_EQ(alone.generation, served);
  a->tell("run");

  listen();
  wait_for_workers(1);
  send_complete(1);
  expect_newest({a.get()});
  {
    absl::StatusOr<WritableSlot> loan = sender_->loan();
    ASSERT_THAT(loan, IsOk());
    sender_.reset();
    write_generation(loan->tensors(), 10'000);  // the loan's memory is still there
  }
  a->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
  EXPECT_EQ(a->report().generation, generation_);
  EXPECT_EQ(a->report().wrong, "");
}

}  // namespace
}  // namespace bascule::test
