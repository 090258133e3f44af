// What a worker holds, and for how long, where it stops or speaks late, seen from the wire: the test is the worker.
#include "sender/wired.h"  // first: see there

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

// It came back holding a slot, let go of it, and stopped in the version that is written there now.
TEST_F(Lease, OfBeforeIsNotThatOfAVersionThatItNeverTook) {
  const auto gone = connect();
  gone->say(WireWorker::hello("w", 1));
  gone->expect<Welcome>();
  const Prepare first = gone->take();
  gone->hang_up();
  const auto worker = connect();
  Hello again = WireWorker::hello("w", 1);
  again.epoch = first.slot.epoch;
  again.serving = 1;
  again.held = {{.slot = first.slot, .version = 1}};
  worker->say(again);
  worker->expect<Welcome>();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  Prepare second;
  send_to(*worker, first, second);
  for (int i = 0; i < 4; ++i) ASSERT_THAT(sender_->send(), IsOk()) << "send " << i;  // it answers nothing any more
}

// A version was aborted, which it had not let go of when its connection was lost.
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
  other->say(Released{.slot = aborted.slot, .version = aborted.version});
  EXPECT_FALSE(sender_->wait_async(test::patience()).ok());
  lost->hang_up();
  for (int i = 0; i < 4; ++i) {
    Prepare now;
    send_to(*other, served, now);
    served = now;
  }
}

TEST_F(Lease, IsNotEndedByAWordOfAnOlderVersion) {
  const auto worker = connect();
  worker->say(WireWorker::hello("w", 1));
  worker->expect<Welcome>();
  const Prepare first = worker->take();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  Prepare second, third, fourth;
  send_to(*worker, first, second);
  send_to(*worker, second, third);
  EXPECT_EQ(third.slot, first.slot);
  worker->say(Released{.slot = first.slot, .version = first.version});
  ASSERT_THAT(sender_->send_async(), IsOk());
  fourth = worker->take();  // and it reads on in the other slot, too
  ASSERT_THAT(sender_->wait_async(test::patience()), IsOk());
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("w")));
}

}  // namespace
}  // namespace bascule
