// Past bugs in the bookkeeping of leases, as replays of the events.
#include "receiver/lease_tracker_fixture.h"

namespace bascule {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// ---- when a lease ends ----

TEST_F(LeaseTrackerTest, ReleasesWhatAFlipLeftOnceItIsGivenBack) {
  join();
  EXPECT_FALSE(flip_to(local(1, kSlot0)));
  const auto left = flip_to(local(2, kSlot1));
  EXPECT_THAT(leases_.held(), ElementsAre(Holds(kSlot1, 2)));
  EXPECT_THAT(give_back(left), Says(kSlot0, 1));
  EXPECT_THAT(leases_.given_back(left->number), SaysNothing()) << "once";
}

TEST_F(LeaseTrackerTest, ReleasesWhatWasAborted) {
  join();
  prepare(1, kSlot0);
  EXPECT_THAT(give_back(leases_.drop()), Says(kSlot0, 1));
}

// A sender that came back sent it the version that it served again, and gave that up.
TEST_F(LeaseTrackerTest, AnAbortOfWhatIsServedReleasesNothing) {
  join();
  flip_to(local(1, kSlot0));
  prepare(1, kSlot0);
  EXPECT_THAT(give_back(leases_.drop()), SaysNothing());
  EXPECT_THAT(leases_.held(), ElementsAre(Holds(kSlot0, 1)));
}

TEST_F(LeaseTrackerTest, AnAbortOfWhatIsDecidedReleasesNothing) {
  join();
  decide(local(1, kSlot0));
  come_back();
  prepare(1, kSlot0);
  EXPECT_THAT(give_back(leases_.drop()), SaysNothing());
}

// A catch-up failed and was begun again: the first one's release would end the second one's lease.
TEST_F(LeaseTrackerTest, ReleasesNoSlotThatAVersionComesIn) {
  join();
  prepare(1, kSlot0);
  const auto first = leases_.drop();
  prepare(2, kSlot0);
  EXPECT_THAT(give_back(first), SaysNothing());
  EXPECT_THAT(give_back(leases_.drop()), Says(kSlot0, 2));
}

// The sender assumes that the release of an earlier lease crossed its prepare.
TEST_F(LeaseTrackerTest, ReleasesInTheNameOfTheLeaseThatItWasToldOfLast) {
  join();
  flip_to(local(1, kSlot0));
  prepare(2, kSlot0);  // a single copy
  EXPECT_TRUE(leases_.incoming()->single_copy);
  EXPECT_THAT(give_back(leases_.drop()), SaysNothing());
  EXPECT_THAT(give_back(flip_to(local(3, kSlot1))), Says(kSlot0, 2));
}

// The release of the lease that it claimed crossed the prepare of another one on the same slot, and both releases named
// that one's number.
TEST_F(LeaseTrackerTest, ReleasesEachLeaseByItsOwnNumber) {
  join();
  flip_to(local(1, kSlot0));
  EXPECT_THAT(come_back().held, ElementsAre(Holds(kSlot0, 1)));
  EXPECT_THAT(give_back(leases_.torn(local(1, kSlot0), false)), Says(kSlot0, kClaimed));
  prepare(1, kSlot0);
  EXPECT_THAT(give_back(leases_.drop()), Says(kSlot0, 1));
}

// The slot is taken out of use while its version is given back: the release named no lease that the sender knew.
TEST_F(LeaseTrackerTest, ReleasesASlotThatTheSenderUsesNoMore) {
  join();
  prepare(1, kSlot0);
  const auto dropped = leases_.drop();
  leases_.prepare(publication(2, kSlot1), 2, {1, 2});
  EXPECT_THAT(give_back(dropped), Says(kSlot0, 1));
}

TEST_F(LeaseTrackerTest, OfTwoThatLeaveOneSlotTheLastReleasesIt) {
  join();
  prepare(1, kSlot0);
  leases_.arrive();
  leases_.offer(local(1, kSlot0), false);
  come_back();
  prepare(1, kSlot0);
  const auto dropped = leases_.drop(), withdrawn = leases_.withdrawn(1, false);
  EXPECT_THAT(give_back(dropped), SaysNothing());
  EXPECT_THAT(give_back(withdrawn), Says(kSlot0, 1));
}

// ---- connections ----

TEST_F(LeaseTrackerTest, SaysNothingThatItsGreetingHasSaid) {
  join();
  flip_to(local(1, kSlot0));
  const auto left = flip_to(local(2, kSlot1));
  EXPECT_THAT(come_back().held, ElementsAre(Holds(kSlot1, 2)));
  prepare(3, kSlot0);
  leases_.arrive();
  EXPECT_THAT(give_back(left), SaysNothing()) << "it would end the lease of version 3";
}

TEST_F(LeaseTrackerTest, ClaimsWhatItServesAndWhatItWasToldToServe) {
  join();
  flip_to(local(1, kSlot0));
  decide(local(2, kSlot1));
  prepare(3, kSlot2);
  const LeaseTracker::Claim claim = come_back();
  EXPECT_EQ(claim.epoch, kTrackedEpoch);
  EXPECT_EQ(claim.serving, 1u);
  EXPECT_THAT(claim.held, UnorderedElementsAre(Holds(kSlot0, 1), Holds(kSlot1, 2)))
      << "the incoming version was dropped";
}

TEST_F(LeaseTrackerTest, ClaimsASlotOnce) {
  join();
  decide(local(1, kSlot0));
  come_back();
  decide(local(1, kSlot0));  // the engine has the previous one
  EXPECT_THAT(come_back().held, ElementsAre(Holds(kSlot0, 1)));
}

TEST_F(LeaseTrackerTest, RefusesOlderVersionsAndEpochs) {
  join();
  flip_to(local(5, kSlot0));
  EXPECT_EQ(leases_.against(kTrackedEpoch, 6), nullptr);
  EXPECT_EQ(leases_.against(kTrackedEpoch, 5), nullptr) << "told again";
  EXPECT_EQ(leases_.against(kTrackedEpoch + 1, std::nullopt), nullptr);
  EXPECT_EQ(leases_.against(kTrackedEpoch, 4)->version, 5u);
  EXPECT_EQ(leases_.against(kTrackedEpoch + 1, 5)->version, 5u) << "other weights under that number";
  EXPECT_EQ(leases_.against(kTrackedEpoch - 1, std::nullopt)->version, 5u);
}

// ---- slots that are gone ----

TEST_F(LeaseTrackerTest, WantsARetiredSlotUntilItIsLeft) {
  join();
  flip_to(local(1, kSlot0));
  EXPECT_TRUE(leases_.prepare(publication(2, kSlot1), 2, {1, 2}));
  leases_.arrive();
  EXPECT_THAT(leases_.wanted(), UnorderedElementsAre(kSlot0, kSlot1, kSlot2));
  leases_.decide(local(2, kSlot1), std::nullopt);
  const LeaseTracker::Freed freed = give_back(leases_.flipped(local(2, kSlot1), false));
  EXPECT_TRUE(freed.unmap);
  EXPECT_THAT(leases_.wanted(), UnorderedElementsAre(kSlot1, kSlot2));
}

TEST_F(LeaseTrackerTest, SaysWhenTheLastOfAnEpochLeaves) {
  join();
  flip_to(local(1, kSlot0));
  EXPECT_FALSE(flip_to(local(2, kSlot1))->last_of_attachment);
  LocalVersion later{.attachment = std::make_shared<Attachment>(), .version = 3};
  later.slot = later.lease = {kTrackedEpoch + 1, 0};
  EXPECT_TRUE(flip_to(later)->last_of_attachment) << "to be unmapped by the prepare thread";
}

// ---- what the engine skips ----

TEST_F(LeaseTrackerTest, ReleasesWhatTheEngineNeverTook) {
  join();
  decide(local(1, kSlot0));
  prepare(2, kSlot1);
  leases_.arrive();
  EXPECT_THAT(give_back(leases_.decide(local(2, kSlot1), local(1, kSlot0))), Says(kSlot0, 1));
}

// The engine was about to flip to 1 when 2 was decided, and again when 3 was.
TEST_F(LeaseTrackerTest, HoldsAllThatTheEngineTookUntilItFlips) {
  join();
  for (const LocalVersion& each : {local(1, kSlot0), local(2, kSlot1), local(3, kSlot2)}) EXPECT_FALSE(decide(each));
  EXPECT_EQ(leases_.held().size(), 3u);
  EXPECT_FALSE(leases_.flipped(local(1, kSlot0), false));
  EXPECT_EQ(leases_.held().size(), 3u);
  EXPECT_THAT(give_back(leases_.flipped(local(2, kSlot1), false)), Says(kSlot0, 1));
  EXPECT_THAT(give_back(leases_.flipped(local(3, kSlot2), false)), Says(kSlot1, 2));
}

TEST_F(LeaseTrackerTest, ServesOnWhereAFlipFails) {
  join();
  flip_to(local(1, kSlot0));
  decide(local(2, kSlot1));
  EXPECT_THAT(give_back(leases_.not_flipped(local(2, kSlot1))), Says(kSlot1, 2));
  EXPECT_EQ(leases_.serving()->version, 1u);
}

// ---- followers ----

TEST_F(LeaseTrackerTest, ReleasesWhatRank0PassedOver) {
  join();
  offer(1, kSlot0);
  leases_.arrive();
  offer(2, kSlot1);
  EXPECT_THAT(give_back(leases_.passed_over(local(1, kSlot0))), Says(kSlot0, 1));
  EXPECT_FALSE(leases_.flipped(local(2, kSlot1), false));
  EXPECT_THAT(leases_.held(), ElementsAre(Holds(kSlot1, 2)));
}

// Its `decided` came after rank 0 chose a later version: until then the lease continues, and then it must end.
TEST_F(LeaseTrackerTest, ReleasesWhatRank0PassedOverBeforeItsCommit) {
  join();
  offer(1, kSlot0);
  EXPECT_TRUE(leases_.offers(1));
  EXPECT_THAT(give_back(leases_.passed_over(local(1, kSlot0))), SaysNothing());
  EXPECT_FALSE(leases_.offers(1)) << "so that its `decided` drops it";
  EXPECT_THAT(give_back(leases_.drop()), Says(kSlot0, 1));
}

// A version that a follower had prepared before it came back lay in the slot of the one that it serves now.
TEST_F(LeaseTrackerTest, ReleasesNothingThatAFollowerServes) {
  join();
  offer(2, kSlot1);
  come_back();
  offer(4, kSlot1);
  leases_.arrive();
  const auto passed = leases_.passed_over(local(2, kSlot1));
  leases_.flipped(local(4, kSlot1), false);
  EXPECT_THAT(give_back(passed), SaysNothing());
}

TEST_F(LeaseTrackerTest, AnAbortTakesNothingFromAnEngineThatHasIt) {
  join();
  offer(1, kSlot0);
  EXPECT_FALSE(leases_.withdrawn(1, /*taken=*/true));
  EXPECT_THAT(give_back(leases_.drop()), SaysNothing());
  EXPECT_FALSE(leases_.flipped(local(1, kSlot0), false));
  EXPECT_THAT(leases_.held(), ElementsAre(Holds(kSlot0, 1)));
}

TEST_F(LeaseTrackerTest, HoldsAVersionThatIsOfferedAgain) {
  join();
  offer(1, kSlot0);
  come_back();
  prepare(1, kSlot0);
  EXPECT_THAT(give_back(leases_.offer(local(1, kSlot0), /*replaces=*/true)), SaysNothing());
  EXPECT_TRUE(leases_.offers(1));
  leases_.arrive();
  EXPECT_THAT(give_back(leases_.passed_over(local(1, kSlot0))), Says(kSlot0, 1));
}

// ---- versions that the engine loads by itself ----

TEST_F(LeaseTrackerTest, WhatTheEngineLoadsIsHeldAndNotClaimed) {
  join();
  flip_to(local(1, kSlot0));
  leases_.doubt();
  const LeaseTracker::Claim claim = come_back();
  EXPECT_EQ(claim.serving, 0u);
  EXPECT_THAT(claim.held, ElementsAre(Holds(kSlot0, 1)));
  leases_.settle_doubt();
  EXPECT_EQ(come_back().serving, 1u);
}

TEST_F(LeaseTrackerTest, WhatWasNotLoadedLeavesAndMayComeAgain) {
  join();
  flip_to(local(1, kSlot0));
  leases_.doubt();
  EXPECT_FALSE(decide(local(1, kSlot0))) << "it came again, and waits at the gate";
  const std::optional<LeaseTracker::Departing> departing = leases_.not_loaded(false);
  EXPECT_EQ(leases_.served(), 0u);
  EXPECT_THAT(give_back(departing), SaysNothing()) << "the version at the gate is in that slot";
  EXPECT_FALSE(leases_.flipped(local(1, kSlot0), false));
  EXPECT_EQ(come_back().serving, 1u);
}

}  // namespace
}  // namespace bascule
