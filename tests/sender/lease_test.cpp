// A worker's leases when it stops or answers late, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

#include <fcntl.h>

#include <filesystem>
#include <string>
#include <thread>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using test::WireWorker;
using testing::HasSubstr;

class Lease : public test::Wired {
 protected:
  void SetUp() override {
    listen();
    ASSERT_THAT(sender_->send(), IsOk());
  }
};

// It came back holding a slot, released it, and stopped in the version that is written there now.
TEST_F(Lease, OfBeforeIsNotThatOfAVersionThatItNeverTook) {
  const auto gone = connect();
  gone->say(WireWorker::hello("w", 1));
  gone->expect<Welcome>();
  Prepare first = gone->take();
  gone->hang_up();
  const auto worker = connect();
  Hello again = WireWorker::hello("w", 1);
  again.epoch = first.slot.epoch;
  again.serving = 1;
  again.held = {{.slot = first.slot, .version = 1}};
  worker->say(again);
  worker->expect<Welcome>();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  first.lease = 0;  // claimed
  Prepare second;
  send_to(*worker, first, second);
  for (int i = 0; i < 4; ++i) ASSERT_THAT(sender_->send(), IsOk()) << "send " << i;  // it no longer answers
}

// A program that this process starts gets none of its sockets; so another thread may start one at any time.
TEST_F(Lease, AndConnectionsAreInheritedByNoProgram) {
  const auto worker = connect();
  worker->serve("w", 1);
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:")) continue;
    ++sockets;
    const int fd = std::stoi(entry.path().filename().string());
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(sockets, 3) << "the listening one, and both ends of a connection";
}

// A version was aborted, and it had not released that when its connection was lost.
TEST_F(Lease, OfAVersionThatWasAbortedEndsWithItsMembership) {
  const auto other = connect(), lost = connect();
  other->say(WireWorker::hello("other", 1));
  other->expect<Welcome>();
  Prepare served = other->take();
  lost->serve("lost", 2);
  ASSERT_THAT(sender_->wait_for_workers(2, test::patience()), IsOk());
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Prepare aborted = other->expect<Prepare>();
  other->say(Ready{.version = aborted.version});
  lost->say(Ready{.version = lost->expect<Prepare>().version});
  other->expect<Sealed>();
  other->say(Failed{.version = aborted.version, .why = "this once"});
  other->expect<Abort>();
  other->release(aborted);
  EXPECT_FALSE(sender_->wait_async(test::patience()).ok());
  lost->hang_up();
  for (int i = 0; i < 4; ++i) {
    Prepare now;
    send_to(*other, served, now);
    served = now;
  }
}

TEST_F(Lease, IsNotEndedByTheWordOfAnEarlierOne) {
  const auto worker = connect();
  worker->say(WireWorker::hello("w", 1));
  worker->expect<Welcome>();
  const Prepare first = worker->take();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  Prepare second, third, fourth;
  send_to(*worker, first, second);
  send_to(*worker, second, third);
  EXPECT_EQ(third.slot, first.slot);
  worker->release(first);
  ASSERT_THAT(sender_->send_async(), IsOk());
  fourth = worker->take();  // and it also still reads the other slot
  ASSERT_THAT(sender_->wait_async(test::patience()), IsOk());
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("w")));
}

class Spares : public test::Wired {
 protected:
  // Two readers that stopped, each in another slot, and one that continues.
  void lose_two(std::string_view options) {
    listen(cat("timeout=500ms&flip_timeout=500ms", options));
    ASSERT_THAT(sender_->send(), IsOk());
    served_ = {};
    for (const char* name : {"stopped-0", "stopped-1"}) {
      stopped_.push_back(connect());
      stopped_.back()->say(WireWorker::hello(name, 10 + stopped_.size()));
      stopped_.back()->expect<Welcome>();
      stopped_.back()->take();
      stopped_.back()->hang_up();  // and it still reads
      for (const Deadline deadline(test::patience()); sender_->wait_for_workers(1, absl::ZeroDuration()).ok();)
        ASSERT_FALSE(deadline.passed());
      if (stopped_.size() == 2) break;
      ASSERT_THAT(sender_->send(), IsOk());
    }
  }
  std::vector<std::unique_ptr<WireWorker>> stopped_;
  Prepare served_;
};

TEST_F(Spares, LetSendsGoOnWhereTwoReadersStoppedOnTwoSlots) {
  lose_two("");
  std::string warnings;
  for (int i = 0; i < 6; ++i) {
    const absl::StatusOr<SendReport> report = sender_->send();
    ASSERT_THAT(report, IsOk()) << "send " << i;
    for (const std::string& warning : report->warnings) warnings += warning + "\n";
  }
  EXPECT_THAT(warnings,
              testing::AllOf(HasSubstr("spare slot 1 of 2: stopped-0 (slot 0) still read"),
                             HasSubstr("spare slot 2 of 2: stopped-0 (slot 0), stopped-1 (slot 1) still read")));
}

TEST_F(Spares, AreBoundedAndTheErrorNamesEachHolderAndItsSlot) {
  lose_two("&spares=1");
  ASSERT_THAT(sender_->send(), IsOk());
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kDeadlineExceeded,
                                        testing::AllOf(HasSubstr("stopped-0 (slot 0)"), HasSubstr("stopped-1 (slot 1)"),
                                                       HasSubstr("spares=2; 1 in use"))));
  stopped_.clear();  // their processes end
  EXPECT_THAT(sender_->send(), IsOk());
}

TEST_F(Spares, MayBeNone) {
  lose_two("&spares=0");
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("stopped-0 (slot 0)")));
}

// It answered an abort while the trainer was still writing. It keeps its lease of a later version in the same slot.
TEST_F(Lease, OfAVersionAbortedWhileItWasWrittenDoesNotEndALaterOne) {
  const auto reader = connect(), other = connect();
  reader->say(WireWorker::hello("reader", 1));
  reader->expect<Welcome>();
  const Prepare first = reader->take();
  const Prepare other_first = other->serve("other", 2);
  ASSERT_THAT(sender_->wait_for_workers(2, test::patience()), IsOk());
  const auto both = {reader.get(), other.get()};
  {
    absl::StatusOr<WritableSlot> loan = sender_->loan();
    ASSERT_THAT(loan, IsOk());
    Prepare aborted;
    for (WireWorker* worker : both) aborted = worker->expect<Prepare>();
    other->say(Failed{.version = 2, .why = "before it was asked"});
    for (WireWorker* worker : both) {
      worker->expect<Abort>();
      worker->release(aborted);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(sender_->publish(*std::move(loan)).ok());
  }
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Prepare served = WireWorker::take_all(both);
  reader->release(first);
  other->release(other_first);
  ASSERT_THAT(sender_->wait_async(test::patience()), IsOk());
  reader->hang_up();  // its process still reads
  Prepare before = served;
  for (int i = 0; i < 3; ++i) {
    Prepare now;
    send_to(*other, before, now);
    EXPECT_NE(now.slot, served.slot) << "it is still read";
    before = now;
  }
}

}  // namespace
}  // namespace bascule
