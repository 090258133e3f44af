// The source of each worker: shapes, workers that come late, messages, and ends.
#include "schemes/relay/routes_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using testing::IsEmpty;
using testing::SizeIs;
using Sources = std::map<WorkerId, SourceId>;

class RelayRoutes : public RoutesFixture {};

struct RelayTree : RoutesFixture {
  RelayTree() : RoutesFixture(RelayShape::kTree) {}
};

// ---- shapes ----

TEST_F(RelayRoutes, InAChainEachCopiesFromTheOneBeforeIt) {
  join({1, 2, 3, 4, 5, 6, 7});
  std::vector<WorkerId> workers;
  Sources expected;
  for (WorkerId count = 1; count <= 7; ++count) {
    workers.push_back(count);
    expected[count] = count - 1;
    want(count, workers);
    EXPECT_EQ(taken(), expected);
    for (const WorkerId worker : workers) got(count, {worker});
    EXPECT_EQ(ended[count], 1);
  }
}

TEST_F(RelayTree, EachIsCopiedByTwoAtMost) {
  const Sources expected = {{1, 0}, {2, 0}, {3, 1}, {4, 1}, {5, 2}, {6, 2}, {7, 3}};
  join({1, 2, 3, 4, 5, 6, 7});
  std::vector<WorkerId> workers;
  for (WorkerId count = 1; count <= 7; ++count) {
    workers.push_back(count);
    want(count, workers);
    EXPECT_EQ(taken(), Sources(expected.begin(), expected.find(count + 1)));
    for (const WorkerId worker : workers) got(count, {worker});
  }
}

TEST_F(RelayRoutes, TheOrderStaysFromVersionToVersion) {
  join({3, 1, 2});
  want(1, {2, 3, 1});
  const Sources first = taken();
  EXPECT_EQ(first, (Sources{{1, 0}, {2, 1}, {3, 2}}));
  got(1, {1, 2, 3});
  want(2, {3, 1, 2});
  EXPECT_EQ(taken(), first);
  EXPECT_THAT(all<action::Introduce>(), IsEmpty()) << "each has mapped that one";
}

TEST_F(RelayRoutes, AnEngineIsIntroducedBeforeItIsCopiedFrom) {
  join({1, 2});
  want(1, {1, 2});
  ASSERT_THAT(actions, SizeIs(3));
  EXPECT_TRUE(std::holds_alternative<action::Deliver>(actions[0]));
  EXPECT_TRUE(std::holds_alternative<action::Introduce>(actions[1]));
  EXPECT_TRUE(introduced(2, 1));
  EXPECT_TRUE(std::holds_alternative<action::Deliver>(actions[2]));
}

TEST_F(RelayRoutes, ADeliveryToNobodyEndsAtOnce) {
  want(1, {});
  EXPECT_EQ(ended[1], 1);
  want(2, {77});  // removed meanwhile
  EXPECT_EQ(ended[2], 1);
}

// ---- workers ----

TEST_F(RelayRoutes, WhereAWorkerReadsInPlaceNothingComesToIt) {
  join({1, 3}, Kind::kInPlace);
  join({2, 4});
  want(1, {1, 2, 3, 4});
  EXPECT_EQ(taken(), (Sources{{2, 0}, {4, 2}}));
  got(1, {2, 4});
  EXPECT_EQ(ended[1], 1);
  want(2, {1, 3});
  EXPECT_EQ(ended[2], 1);
}

TEST_F(RelayRoutes, AWorkerWhoseMessageComesLateIsTheLastOfTheChain) {
  join({2, 3});
  tell(event::Joined{1});
  want(1, {1, 2, 3});
  EXPECT_EQ(taken(), (Sources{{2, 0}, {3, 2}}));
  got(1, {2, 3});
  EXPECT_EQ(ended[1], 0);
  tell(event::Heard{1, {.kind = Kind::kBuffers, .place = place_of(1)}});
  EXPECT_EQ(taken(), (Sources{{1, 3}}));
  EXPECT_TRUE(told(1, Kind::kTake).whole);
  got(1, {1});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayRoutes, ALateWorkerThatReadsInPlaceIsWaitedForNoMore) {
  join({2});
  tell(event::Joined{1});
  want(1, {1, 2});
  got(1, {2});
  tell(event::Heard{1, {.kind = Kind::kInPlace}});
  EXPECT_EQ(ended[1], 1);
}

TEST_F(RelayRoutes, SeveralLateWorkersCopyFromEachOther) {
  for (const WorkerId worker : {1, 2, 3}) tell(event::Joined{worker});
  want(1, {1, 2, 3});
  EXPECT_THAT(actions, IsEmpty());
  tell(event::Heard{3, {.kind = Kind::kBuffers, .place = place_of(3)}});
  EXPECT_EQ(taken(), (Sources{{3, 0}}));
  tell(event::Heard{1, {.kind = Kind::kBuffers, .place = place_of(1)}});
  EXPECT_EQ(taken(), (Sources{{1, 3}}));
  tell(event::Heard{2, {.kind = Kind::kBuffers, .place = place_of(2)}});
  EXPECT_EQ(taken()[2], routes.source_of(2, 1));
  EXPECT_NE(taken()[2], 0u);
}

TEST_F(RelayRoutes, AJoinerCopiesFromAnEngineThatHasAllRatherThanFromTheTrainer) {
  join({1, 2});
  want(1, {1, 2});
  got(1, {1, 2});
  join({3, 4});
  want(2, {3}, 1);
  const RelayMessage take = told(3, Kind::kTake);
  EXPECT_EQ(take.source, 1u);
  EXPECT_TRUE(take.whole);
  EXPECT_TRUE(introduced(3, 1));
  want(3, {4}, 1);
  EXPECT_EQ(told(4, Kind::kTake).source, 2u) << "from worker 1 somebody copies already";
}

TEST_F(RelayRoutes, AJoinerDoesNotCopyFromAnEngineThatGetsTheNextVersion) {
  join({1, 2});
  want(1, {1});
  got(1, {1});
  want(2, {1});
  want(3, {2}, 1);
  EXPECT_EQ(told(2, Kind::kTake).source, kTrainer);
}

// ---- messages ----

TEST_F(RelayRoutes, AWorkerThatCannotReadAnEngineReadsTheTrainer) {
  join({1, 2, 3});
  want(1, {1, 2, 3});
  hear(3, Kind::kCannot, 1, 2);
  EXPECT_EQ(redirected(), (Sources{{3, kTrainer}}));
  EXPECT_EQ(routes.source_of(3, 1), kTrainer);
}

TEST_F(RelayRoutes, AMessageOfAnEngineThatItReadsNoMoreChangesNothing) {
  join({1, 2, 3});
  want(1, {1, 2, 3});
  remove(2);
  EXPECT_EQ(routes.source_of(3, 1), 1u);
  hear(3, Kind::kCannot, 1, 2);
  hear(3, Kind::kCannot, 1, kTrainer);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(routes.source_of(3, 1), 1u);
}

TEST_F(RelayRoutes, ReadersOfAnEngineThatIsAloneGoOnFromItsSource) {
  join({1, 2, 3});
  want(1, {1, 2, 3});
  hear(2, Kind::kAlone, 1);
  EXPECT_EQ(redirected(), (Sources{{3, 1}}));
  EXPECT_TRUE(introduced(3, 1));
  join({4});
  got(1, {1, 2, 3});
  remove(1);
  remove(3);
  want(2, {4}, 1);
  EXPECT_EQ(told(4, Kind::kTake).source, kTrainer) << "no worker copies from one that is alone";
}

TEST_F(RelayRoutes, AnEngineIsAloneForOneVersionOnly) {
  join({1, 2});
  want(1, {1, 2});
  hear(1, Kind::kAlone, 1);
  got(1, {1, 2});
  want(2, {1, 2});
  EXPECT_EQ(taken(), (Sources{{1, 0}, {2, 1}}));
}

TEST_F(RelayRoutes, AMessageOfAnEarlierDeliveryDoesNotLeaveAnEngineAlone) {
  join({1, 2});
  want(1, {1, 2});
  stop(1);
  want(2, {1});
  hear(1, Kind::kAlone, 1);
  got(2, {1});
  hear(1, Kind::kLeft, 1);
  hear(2, Kind::kLeft, 1);
  want(3, {2}, 2);
  EXPECT_EQ(told(2, Kind::kTake).source, 1u);
}

TEST_F(RelayRoutes, ReadersOfAWorkerThatLeftGoOnFromItsSource) {
  join({1, 2, 3});
  want(1, {1, 2, 3});
  hear(2, Kind::kLeft, 1);
  EXPECT_EQ(redirected(), (Sources{{3, 1}}));
  got(1, {1, 3});
  EXPECT_EQ(ended[1], 1);
}

// Its digest was wrong, or could not be made.
TEST_F(RelayRoutes, AWorkerThatGotItAndLeavesHasItNoMore) {
  join({1, 2, 3});
  want(1, {1, 2});
  got(1, {1});
  hear(1, Kind::kLeft, 1);
  EXPECT_EQ(redirected(), (Sources{{2, kTrainer}}));
  want(2, {3}, 1);
  EXPECT_EQ(told(3, Kind::kTake).source, kTrainer);
}

TEST_F(RelayRoutes, AWorkerThatLeavesAfterTheDeliveryHasItNoMore) {
  join({1, 2});
  want(1, {1});
  got(1, {1});
  hear(1, Kind::kLeft, 1);
  want(2, {2}, 1);
  EXPECT_EQ(taken(), (Sources{{2, kTrainer}}));
}

// A group catches up together: each of them writes over the copy that it has.
TEST_F(RelayRoutes, WorkersThatGetAVersionAgainFormAChainOnceMore) {
  join({1, 2, 3});
  want(1, {1, 2, 3});
  got(1, {1, 2, 3});
  want(2, {1, 2}, 1);
  EXPECT_EQ(taken(), (Sources{{1, 3}, {2, 1}}));
  hear(1, Kind::kAlone, 2);
  EXPECT_EQ(redirected(), (Sources{{2, kTrainer}}));
  remove(1);
  got(2, {2});
  EXPECT_EQ(ended[2], 1);
}

TEST_F(RelayRoutes, AnEngineThatCouldNotBeIntroducedIsIntroducedNextTime) {
  join({1, 2});
  want(1, {1, 2});
  EXPECT_TRUE(introduced(2, 1));
  routes.not_introduced(2, 1);
  got(1, {1, 2});
  want(2, {1, 2});
  EXPECT_TRUE(introduced(2, 1));
}

TEST_F(RelayRoutes, ASendersMessageFromAWorkerEvictsIt) {
  for (const Kind kind : {Kind::kTake, Kind::kFrom, Kind::kOver, Kind::kEngine, Kind::kForget}) {
    join({1});
    tell(event::Heard{1, {.kind = kind}});
    EXPECT_THAT(all<action::GiveUp>(), SizeIs(1));
    remove(1);
  }
}

TEST_F(RelayRoutes, MessagesOfStrangersAndOfOtherDeliveriesChangeNothing) {
  join({1, 2});
  want(1, {1});
  for (int kind = 0; kind <= static_cast<int>(Kind::kForget); ++kind) {
    hear(99, static_cast<Kind>(kind), 1);
    EXPECT_THAT(actions, IsEmpty());
  }
  for (const Kind kind : {Kind::kAlone, Kind::kGot, Kind::kLeft, Kind::kCannot}) {
    hear(1, kind, 77);
    EXPECT_THAT(actions, IsEmpty());
    hear(2, kind, 1);  // the version does not reach it
    EXPECT_THAT(actions, IsEmpty());
  }
  EXPECT_EQ(routes.source_of(1, 1), kTrainer);
  remove(99);
  stop(99);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(RelayRoutes, AMessageBeforeTheDeliverMessageEndsNothing) {
  tell(event::Joined{1});
  want(1, {1});
  for (const Kind kind : {Kind::kAlone, Kind::kGot, Kind::kLeft, Kind::kCannot}) hear(1, kind, 1);
  EXPECT_EQ(ended[1], 0);
}

}  // namespace
}  // namespace bascule::inline v0::relay
