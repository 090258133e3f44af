// Engines that die during a version, deliveries that are stopped, and buffers that others still read.
#include "schemes/relay/routes_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Sources = std::map<WorkerId, SourceId>;

class RelayEnds : public RoutesFixture {
 protected:
  void chain_of_three() {
    join({1, 2, 3});
    want(1, {1, 2, 3});
  }
};

TEST_F(RelayEnds, BehindTheFirstTheNextGoesOnFromTheTrainer) {
  chain_of_three();
  remove(1);
  EXPECT_EQ(redirected(), (Sources{{2, kTrainer}}));
  EXPECT_EQ(told(2, Kind::kForget).source, 1u);
  EXPECT_EQ(routes.source_of(3, 1), 2u);
  got(1, {2, 3});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, BehindAMiddleOneTheNextGoesOnFromTheOneBefore) {
  chain_of_three();
  remove(2);
  EXPECT_EQ(redirected(), (Sources{{3, 1}}));
  EXPECT_TRUE(introduced(3, 1));
  EXPECT_FALSE(told(3, Kind::kFrom).whole);
}

TEST_F(RelayEnds, BehindTheLastNobodyIsTold) {
  chain_of_three();
  remove(3);
  EXPECT_THAT(actions, IsEmpty());
  got(1, {1, 2});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, AnEngineThatGotItAndDiesLeavesItsReadersToItsSource) {
  chain_of_three();
  got(1, {1, 2});
  remove(2);
  EXPECT_EQ(redirected(), (Sources{{3, 1}}));
  EXPECT_TRUE(told(3, Kind::kFrom).whole);
  remove(1);
  EXPECT_EQ(redirected(), (Sources{{3, kTrainer}}));
  got(1, {3});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, WhereTheSourceOfTheDeadIsDeadTooTheTrainerIsLeft) {
  chain_of_three();
  got(1, {2});
  remove(1);
  EXPECT_THAT(redirected(), IsEmpty()) << "worker 2 no longer reads it";
  remove(2);
  EXPECT_EQ(redirected(), (Sources{{3, kTrainer}}));
}

TEST_F(RelayEnds, TwoDeathsAtOnceInEitherOrder) {
  for (const bool first_before_second : {true, false}) {
    const std::uint64_t base = first_before_second ? 0 : 10;
    join({base + 1, base + 2, base + 3});
    want(base + 1, {base + 1, base + 2, base + 3});
    remove(first_before_second ? base + 1 : base + 2);
    remove(first_before_second ? base + 2 : base + 1);
    EXPECT_EQ(redirected(), (Sources{{base + 3, kTrainer}}));
    got(base + 1, {base + 3});
    EXPECT_EQ(ended[base + 1], 1);
    remove(base + 3);
  }
}

TEST_F(RelayEnds, TheDeathOfTheLastOneThatIsWaitedForEndsIt) {
  chain_of_three();
  got(1, {1, 2});
  EXPECT_EQ(ended[1], 0);
  remove(3);
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, ADeathEndsEachDeliveryThatWaitedForItAlone) {
  join({1});
  want(1, {1});
  stop(1);
  want(2, {1});
  remove(1);
  EXPECT_EQ(ended, (std::map<std::uint64_t, int>{{1, 1}, {2, 1}}));
}

TEST_F(RelayEnds, AReaderOfAnEarlierDeliveryGoesOnFromTheTrainerToo) {
  join({1, 2});
  want(1, {1});
  got(1, {1});
  want(2, {2}, 1);
  EXPECT_EQ(routes.source_of(2, 1), 1u);
  remove(1);
  EXPECT_EQ(redirected(), (Sources{{2, kTrainer}}));
}

TEST_F(RelayEnds, OneThatDiesBeforeItsMessageIsNotWaitedFor) {
  tell(event::Joined{1});
  want(1, {1});
  remove(1);
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, WhoeverWasNotIntroducedForgetsNobody) {
  chain_of_three();
  got(1, {1, 2, 3});
  remove(1);
  EXPECT_THAT(all<action::Say>(), SizeIs(1));
  EXPECT_EQ(told(2, Kind::kForget).source, 1u);
}

// ---- stop ----

TEST_F(RelayEnds, AStoppedDeliveryEndsOnceAllHaveLeft) {
  chain_of_three();
  got(1, {1});
  stop(1);
  EXPECT_THAT(all<action::Say>(), SizeIs(2));
  EXPECT_EQ(told(2, Kind::kOver).number, 1u);
  EXPECT_EQ(told(3, Kind::kOver).number, 1u);
  hear(2, Kind::kLeft, 1);
  EXPECT_EQ(ended[1], 0);
  got(1, {3});  // it had all of it before that message
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, AStoppedDeliveryIsNotStoppedAgain) {
  chain_of_three();
  stop(1);
  stop(1);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(RelayEnds, AStopBeforeAnyMessageEndsItAtOnce) {
  tell(event::Joined{1});
  want(1, {1});
  stop(1);
  EXPECT_EQ(ended[1], 1);
  tell(event::Heard{1, {.kind = Kind::kBuffers, .place = place_of(1)}});
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(RelayEnds, AStopEndsTheWaitForALateWorkerOnly) {
  join({2});
  tell(event::Joined{1});
  want(1, {1, 2});
  stop(1);
  EXPECT_EQ(ended[1], 0);
  hear(2, Kind::kLeft, 1);
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, AStopAfterTheEndDoesNothing) {
  join({1});
  want(1, {1});
  got(1, {1});
  stop(1);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, NobodyIsSentElsewhereForAVersionThatIsStopped) {
  chain_of_three();
  stop(1);
  remove(1);
  EXPECT_THAT(redirected(), IsEmpty());
  hear(3, Kind::kCannot, 1, 2);
  EXPECT_THAT(redirected(), IsEmpty());
  hear(2, Kind::kLeft, 1);
  hear(3, Kind::kLeft, 1);
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayEnds, MessagesTwiceEndItOnce) {
  join({1, 2});
  want(1, {1, 2});
  for (int i = 0; i < 2; ++i) {
    got(1, {1});
    hear(1, Kind::kLeft, 1);
  }
  EXPECT_EQ(ended[1], 0);
  for (int i = 0; i < 2; ++i) {
    hear(2, Kind::kLeft, 1);
    got(1, {2});
    remove(2);
  }
  EXPECT_EQ(ended[1], 1);
  EXPECT_EQ(routes.deliveries(), 0u);
}

// ---- buffers that others read ----

TEST_F(RelayEnds, AVersionThatIsReadIsSparedByTheNext) {
  join({1, 2, 3});
  want(1, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, IsEmpty());
  got(1, {1});
  want(2, {2}, 1);
  want(3, {3}, 1);
  EXPECT_EQ(routes.source_of(2, 1), 1u);
  want(4, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, ElementsAre(1)) << "once, however many read it";
  got(2, {2});
  got(3, {3});
  got(4, {1});
  want(5, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, IsEmpty());
}

TEST_F(RelayEnds, AVersionThatIsStoppedIsSparedUntilItsReaderLeft) {
  join({1, 2});
  want(1, {1, 2});
  stop(1);
  hear(1, Kind::kLeft, 1);
  want(2, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, ElementsAre(1));
  hear(2, Kind::kLeft, 1);
  hear(1, Kind::kGot, 2);
  want(3, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, IsEmpty());
}

// It was told to continue elsewhere, and may be in the middle of a copy.
TEST_F(RelayEnds, WhatAReaderWasSentAwayFromIsSparedAsLongAsItReads) {
  join({1, 2, 3});
  want(1, {1, 2});
  hear(1, Kind::kLeft, 1);  // it failed there
  EXPECT_EQ(told(2, Kind::kFrom).source, kTrainer);
  want(2, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, ElementsAre(1));
  got(1, {2});
  want(3, {1});
  EXPECT_THAT(told(1, Kind::kTake).spared, IsEmpty());
}

}  // namespace
}  // namespace bascule::inline v0::relay
