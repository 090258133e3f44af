// LeaseTracker when a flip does not just leave a slot: a single copy, engines that copy, late devices.
#include "receiver/lease_tracker_fixture.h"

namespace bascule {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// ---- a single copy ----

TEST_F(LeaseTrackerTest, InDoubtServesNothingAndHoldsItsSlot) {
  join();
  flip_to(local(1, kSlot0));
  prepare(2, kSlot0);
  leases_.incoming()->yielded = true;
  leases_.doubt();  // the sender was lost
  const LeaseTracker::Claim claim = come_back();
  EXPECT_EQ(claim.serving, 0u);
  EXPECT_THAT(claim.held, ElementsAre(Holds(kSlot0, 1)));
  flip_to(local(1, kSlot0));  // it came back unwritten
  EXPECT_EQ(come_back().serving, 1u);
}

TEST_F(LeaseTrackerTest, IsNoSingleCopyWhereItIsToldAgain) {
  join();
  flip_to(local(1, kSlot0));
  prepare(1, kSlot0);
  EXPECT_FALSE(leases_.incoming()->single_copy);
}

// ---- engines that copy ----

TEST_F(LeaseTrackerTest, OfACopyAtAFlipTheLeaseEndsWithTheFlip) {
  join(Takes::kCopyAtFlip);
  EXPECT_THAT(give_back(flip_to(copied(1, kSlot0))), Says(kSlot0, 1));
  EXPECT_THAT(leases_.held(), IsEmpty());
  EXPECT_EQ(come_back().serving, 1u);
}

// It is given the version that it is copying once more, so that this is also at the gate.
TEST_F(LeaseTrackerTest, OfACopyAtAFlipHoldsTheSlotOfOneMoreAtTheGate) {
  join(Takes::kCopyAtFlip);
  decide(copied(1, kSlot0));  // and the engine has it
  come_back();
  decide(copied(1, kSlot0));
  EXPECT_THAT(give_back(leases_.flipped(copied(1, kSlot0), false)), SaysNothing());
  EXPECT_THAT(leases_.held(), ElementsAre(Holds(kSlot0, 1)));
  EXPECT_THAT(give_back(leases_.flipped(copied(1, kSlot0), false)), Says(kSlot0, 1));
}

TEST_F(LeaseTrackerTest, OfACopyAheadTheLeaseEndsWithTheCommitAndRoomComesWithTheFlip) {
  join(Takes::kCopyAhead);
  prepare(1, kSlot0);
  EXPECT_TRUE(leases_.has_room());
  LocalVersion ahead{.attachment = nullptr, .version = 1, .slot = {0, 1}, .lease = kSlot0};
  const auto dropped = leases_.drop();
  EXPECT_FALSE(leases_.decide(ahead, std::nullopt));
  EXPECT_THAT(give_back(dropped), Says(kSlot0, 1));
  EXPECT_FALSE(leases_.has_room());
  EXPECT_FALSE(leases_.flipped(ahead, false));
  EXPECT_TRUE(leases_.has_room());
}

// ---- devices ----

TEST_F(LeaseTrackerTest, HoldsWhatALateStreamReads) {
  join();
  flip_to(local(1, kSlot0));
  const auto draining = flip_to(local(2, kSlot1), /*late=*/true);
  EXPECT_THAT(leases_.held(), UnorderedElementsAre(Holds(kSlot0, 1), Holds(kSlot1, 2)));
  EXPECT_THAT(come_back().held.size(), 2u) << "claimed, so that its release goes over this connection";
  const LeaseTracker::Freed freed = give_back(draining);
  EXPECT_THAT(freed, Says(kSlot0, kClaimed));
  EXPECT_EQ(freed.attachment, attachment_) << "for the prepare thread";
}

// It reads a receive buffer, and drains from a copy of the slot in which the next version came.
TEST_F(LeaseTrackerTest, HoldsASlotWhoseLeaseGoesOn) {
  join();
  LocalVersion copy1 = local(1, kSlot0), copy2 = local(2, kSlot0);
  copy1.slot = {kTrackedEpoch, kOwnMemory}, copy2.slot = {kTrackedEpoch, kOwnMemory + 1};
  flip_to(copy1);
  EXPECT_THAT(give_back(flip_to(copy2, /*late=*/true)), SaysNothing());
  EXPECT_THAT(give_back(flip_to(local(3, kSlot1))), Says(kSlot0, 2));
}

TEST_F(LeaseTrackerTest, ACopyAtAFlipThatIsLateHoldsItsSlotAndLeavesNoRoom) {
  join(Takes::kCopyAtFlip);
  give_back(flip_to(copied(1, kSlot0)));
  leases_.decide(copied(2, kSlot1), std::nullopt);
  const auto late = leases_.torn(copied(2, kSlot1), /*late=*/true);
  const LeaseTracker::Claim claim = come_back();
  EXPECT_EQ(claim.serving, 0u);
  EXPECT_THAT(claim.held, ElementsAre(Holds(kSlot1, 2)));
  EXPECT_FALSE(leases_.has_room());
  EXPECT_THAT(give_back(late), Says(kSlot1, kClaimed));
  EXPECT_TRUE(leases_.has_room());
  prepare(3, kSlot1);
  EXPECT_THAT(give_back(leases_.drop()), Says(kSlot1, 3)) << "another lease";
}

TEST_F(LeaseTrackerTest, ReleasesNothingOnceTheDeviceIsLost) {
  join();
  flip_to(local(1, kSlot0));
  const auto draining = flip_to(local(2, kSlot1), /*late=*/true);
  prepare(3, kSlot2);
  const auto dropped = leases_.drop();
  leases_.lose();
  EXPECT_THAT(give_back(draining), SaysNothing());
  EXPECT_THAT(give_back(dropped), SaysNothing());
  EXPECT_FALSE(leases_.not_flipped(local(3, kSlot2)));
  EXPECT_FALSE(leases_.flipped(local(3, kSlot2), false));
  EXPECT_THAT(leases_.greet().held, IsEmpty()) << "no lease counts";
  EXPECT_EQ(leases_.attachments().size(), 2u) << "and nothing is unmapped";
}

}  // namespace
}  // namespace bascule
