// The newest version for a worker that came late, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

namespace bascule {
namespace {

using CatchUp = test::Wired;

TEST_F(CatchUp, IsTriedAgainOnceTheSlotWasReleased) {
  listen("heartbeat=20ms");
  ASSERT_THAT(sender_->send(), test::IsOk());
  const auto connected = connect();
  test::WireWorker& worker = *connected;
  worker.say(test::WireWorker::hello("late", 5));
  worker.expect<Welcome>();
  const Prepare first = worker.expect<Prepare>();
  EXPECT_EQ(first.version, 1);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Failed{.version = 1, .why = "this once"});
  EXPECT_EQ(worker.expect<Abort>().version, 1);

  // The release answers the abort, and ends the lease. An earlier second try would be left without a lease.
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(worker.next()));
  worker.release(first);
  const Prepare second = worker.expect<Prepare>();
  EXPECT_EQ(second.version, 1);
  EXPECT_EQ(second.slot, first.slot);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Prepared{.version = 1});
  EXPECT_EQ(worker.expect<Decided>().version, 1);
}

// A worker that joins while a version is in flight takes the previous one, then that one.
TEST_F(CatchUp, ThatEndsWithinASendIsFollowedByAnother) {
  listen();
  ASSERT_THAT(sender_->send(), test::IsOk());
  absl::StatusOr<WritableSlot> loan = sender_->loan();
  ASSERT_THAT(loan, test::IsOk());
  const auto worker = connect();
  worker->serve("late", 5);
  ASSERT_THAT(sender_->publish(*std::move(loan)), test::IsOk());
  EXPECT_EQ(worker->take().version, 2);
}

}  // namespace
}  // namespace bascule
