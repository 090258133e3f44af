// Replays: when each group is made, what goes through it, and how a delivery ends. Each rule is a test.
#include "schemes/nccl/planner_replay.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = GroupMessage::Kind;
using State = DeliveryPlanner::State;

class NcclDeliveryPlanner : public PlannerReplay {};

TEST_F(NcclDeliveryPlanner, WorkersThatJoinTogetherAreOneGroup) {
  join({1, 2});
  pass(absl::Milliseconds(50));
  join({3});
  pass(absl::Milliseconds(60));
  EXPECT_THAT(actions, testing::Not(testing::Contains(testing::VariantWith<action::Say>(testing::_))));
  pass(absl::Milliseconds(50));
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2, 3));
}

TEST_F(NcclDeliveryPlanner, AnIdIsDrawnOnceAllHaveSaidReady) {
  join({1, 2});
  pass(absl::Milliseconds(100));
  hear(1, Kind::kReady, 1);
  EXPECT_THAT(all<action::Make>(), IsEmpty());
  hear(2, Kind::kReady, 1);
  ASSERT_EQ(all<action::Make>().size(), 1u);
  EXPECT_THAT(all<action::Make>().front().workers, ElementsAre(1, 2));
}

TEST_F(NcclDeliveryPlanner, AGroupWarmsBeforeItIsUsed) {
  join({1});
  pass(absl::Milliseconds(100));
  make(1, {1});
  EXPECT_THAT(told(Kind::kWarm), ElementsAre(1));
  want(1, {1});
  EXPECT_THAT(all<action::Broadcast>(), IsEmpty()) << "a first launch needs an idle device";
  warm(1, {1});
  EXPECT_EQ(all<action::Broadcast>().size(), 1u);
}

TEST_F(NcclDeliveryPlanner, WhatWaitsForAGroupIsItsFirstBroadcast) {
  join({1});
  want(1, {1});
  make(1, {1});
  EXPECT_THAT(told(Kind::kWarm), IsEmpty());
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1));
  got(1, 1, {1});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclDeliveryPlanner, ADeliveryIsDoneOnceAllHaveItAndItsOwnPartIsSent) {
  run({1, 2});
  want(1, {1, 2});
  hear(1, Kind::kGot, 1, 1);
  tell(event::Sent{1, 1, absl::OkStatus()});
  EXPECT_THAT(all<action::Done>(), IsEmpty());
  hear(2, Kind::kGot, 1, 1);
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclDeliveryPlanner, AJoinerIsServedBesideTheOthersAndThenAmongThem) {
  run({1, 2});
  join({3});
  want(1, {1, 2, 3});
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1, 2)) << "at once, by the group that runs";
  make(2, {3});
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1, 2, 3));
  got(1, 1, {1, 2});
  got(1, 2, {3});
  EXPECT_THAT(done(1), IsOk());
  forget();
  pass(absl::Milliseconds(100));
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2, 3));
  make(3, {1, 2, 3});
  warm(3, {1, 2, 3});
  EXPECT_THAT(all<action::Leave>().size(), 1u) << "but the one that was used last";
  want(2, {1, 2, 3});
  ASSERT_EQ(all<action::Broadcast>().size(), 1u);
  EXPECT_EQ(all<action::Broadcast>().front().group, 3u);
}

TEST_F(NcclDeliveryPlanner, AStoppedOneRunsOutAndKeepsItsGroup) {
  run({1});
  want(1, {1});
  tell(event::Stopped{.number = 1, .whole = false});
  EXPECT_EQ(all<action::RunOut>().size(), 1u);
  got(1, 1, {1});
  EXPECT_THAT(done(1), StatusIs(StatusCode::kAborted, HasSubstr("given up")));
  EXPECT_THAT(all<action::Leave>(), IsEmpty());
}

TEST_F(NcclDeliveryPlanner, AStoppedOneWhosePiecesAreStuckIsLeftInTime) {
  run({1});
  want(1, {1});
  tell(event::Stopped{.number = 1, .whole = false});
  pass(absl::Seconds(5));
  EXPECT_EQ(all<action::Leave>().size(), 1u);
  hear(1, Kind::kDropped, 1);
  tell(event::Left{1});
  EXPECT_THAT(told(Kind::kOver), ElementsAre(1));
  EXPECT_THAT(done(1), StatusIs(StatusCode::kAborted, HasSubstr("given up")));
}

// The version's report has the sender's reason, not the workers' errors that followed.
TEST_F(NcclDeliveryPlanner, ADeliveryIsDoneBeforeItsWorkersHearThatItIsOver) {
  run({1});
  want(1, {1});
  tell(event::Stopped{.number = 1, .whole = true});
  hear(1, Kind::kDropped, 1);
  forget();
  tell(event::Left{1});
  ASSERT_FALSE(actions.empty());
  EXPECT_TRUE(std::holds_alternative<action::Done>(actions.front()));
  EXPECT_THAT(told(Kind::kOver), ElementsAre(1));
}

}  // namespace
}  // namespace bascule::inline v0::nccl
