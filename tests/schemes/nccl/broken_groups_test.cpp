// Replays: the fate of a group that breaks, of its workers, and of deliveries under way in it. Each rule is a test.
#include "schemes/nccl/planner_replay.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = GroupMessage::Kind;

class NcclBrokenGroups : public PlannerReplay {};

TEST_F(NcclBrokenGroups, AVersionGoesOnWhereAllThatAreLeftHaveIt) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  tell(event::Removed{3});
  EXPECT_THAT(told(Kind::kDrop), ElementsAre(1, 2));
  hear(1, Kind::kDropped, 1, 1, 4 * kPiece);
  hear(2, Kind::kDropped, 1, 1, 2 * kPiece + 3);
  EXPECT_THAT(told(Kind::kAsk), IsEmpty()) << "this end has not left";
  tell(event::Left{1});
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2));
  forget();
  make(2, {1, 2});
  ASSERT_EQ(all<action::Broadcast>().size(), 1u);
  EXPECT_EQ(all<action::Broadcast>().front().from, 2 * kPiece);
  EXPECT_THAT(told(Kind::kAgain), ElementsAre(1, 2));
  EXPECT_THAT(told(Kind::kDeliver), IsEmpty());
}

TEST_F(NcclBrokenGroups, OneThatHadNotBegunBeginsAtTheStart) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  tell(event::Removed{3});
  hear(1, Kind::kDropped, 1, 1, 4 * kPiece);
  hear(2, Kind::kDropped, 1);
  tell(event::Left{1});
  make(2, {1, 2});
  EXPECT_EQ(all<action::Broadcast>().back().from, 0u);
}

TEST_F(NcclBrokenGroups, OneThatHasItAllIsNotSentToAgain) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  hear(1, Kind::kGot, 1, 1);
  tell(event::Removed{3});
  hear(1, Kind::kDropped, 1);
  hear(2, Kind::kDropped, 1, 1, kPiece);
  forget();
  tell(event::Left{1});
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(2));
}

// Otherwise the next part would wait for it in vain.
TEST_F(NcclBrokenGroups, GotBehindDroppedTakesAWorkerOutOfThePartThatWaits) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  tell(event::Removed{3});
  hear(1, Kind::kDropped, 1, 1, kPiece);
  hear(2, Kind::kDropped, 1, 1, kPiece);
  tell(event::Left{1});  // group 2 of both is asked
  forget();
  hear(1, Kind::kGot, 1, 1);
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(2));
  make(3, {2});
  EXPECT_THAT(told(Kind::kAgain), ElementsAre(2));
  got(1, 3, {2});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclBrokenGroups, AWorkerThatDoesNotTakeADeliveryHoldsNobody) {
  run({1, 2});
  want(1, {1, 2});
  hear(1, Kind::kFailed, 1, 1);
  EXPECT_THAT(told(Kind::kDrop), ElementsAre(1, 2));
  hear(1, Kind::kDropped, 1);
  hear(2, Kind::kDropped, 1, 1, 0);
  tell(event::Left{1});
  make(2, {2});
  got(1, 2, {2});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclBrokenGroups, ASilentWorkerIsGivenUpAndTheOthersGoOn) {
  join({1, 2});
  want(1, {1, 2});
  hear(1, Kind::kReady, 1);
  pass(absl::Seconds(5));
  ASSERT_EQ(all<action::GiveUp>().size(), 1u);
  EXPECT_EQ(all<action::GiveUp>().front().worker, 2u);
  EXPECT_THAT(all<action::GiveUp>().front().why, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("within 5s")));
  tell(event::Removed{2});
  make(3, {1});
  got(1, 3, {1});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclBrokenGroups, ThreeCommunicatorsThatBreakAreEnough) {
  run({1});
  want(1, {1});
  for (CommGroupId group = 1; group <= 3; ++group) {
    if (group > 1) make(group, {1});
    hear(1, Kind::kFailed, group);
    hear(1, Kind::kDropped, group);
    tell(event::Left{group});
  }
  EXPECT_THAT(done(1), StatusIs(StatusCode::kUnavailable,
                                AllOf(HasSubstr("given up after 3 communicators"), HasSubstr("broken"))));
  EXPECT_THAT(told(Kind::kOver), ElementsAre(1));
}

TEST_F(NcclBrokenGroups, AWorkerThatNeverJoinsAnyIsGivenUp) {
  join({1});
  want(1, {1});
  for (CommGroupId group = 1; group <= 3; ++group) {
    EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
    hear(1, Kind::kFailed, group);
  }
  EXPECT_EQ(all<action::GiveUp>().size(), 1u);
}

TEST_F(NcclBrokenGroups, AGroupThatRunsTakesBackStrikes) {
  join({1});
  CommGroupId group = 0;
  for (int i = 0; i < 5; ++i) {
    want(static_cast<std::uint64_t>(i) + 1, {1});
    hear(1, Kind::kFailed, ++group);
    make(++group, {1});
    hear(1, Kind::kFailed, group);  // possibly caused by another worker's death
    hear(1, Kind::kDropped, group);
    tell(event::Left{group});
    make(++group, {1});
    got(static_cast<std::uint64_t>(i) + 1, group, {1});
    tell(event::Sent{group, 0, absl::UnavailableError("it broke")});
    hear(1, Kind::kDropped, group);
    tell(event::Left{group});
  }
  EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
}

TEST_F(NcclBrokenGroups, AGroupThatBrokeWithoutAMessageWhyIsMadeAgainAllTheSame) {
  run({1});
  tell(event::Heard{1, {.kind = Kind::kFailed, .group = 1}});
  hear(1, Kind::kDropped, 1);
  tell(event::Left{1});
  pass(absl::Seconds(10));
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1));
}

// No rank of a group finishes before all have come, so it is unknown which one is missing.
TEST_F(NcclBrokenGroups, AGroupThatIsNotCompletedIsTakenApartAndTheBadWorkerGivenUp) {
  join({1, 2});
  pass(absl::Milliseconds(100));
  want(7, {1, 2});
  for (const WorkerId worker : {1, 2}) hear(worker, Kind::kReady, 1);  // and 2 never comes
  forget();
  pass(absl::Seconds(10));
  EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
  EXPECT_THAT(told(Kind::kDrop), ElementsAre(1, 2));
  forget();
  for (const WorkerId worker : {1, 2}) hear(worker, Kind::kDropped, 1);
  tell(event::Left{1});
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2)) << "each is asked into a group that it is alone in";
  make(2, {1});
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1)) << "the good one is served";
  hear(2, Kind::kReady, 3);
  pass(absl::Seconds(10));
  const auto given_up = all<action::GiveUp>();
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0].worker, 2u);
}

TEST_F(NcclBrokenGroups, AWorkerThatBreaksEvenAGroupOfItsOwnIsGivenUpAndTheOthersHaveTheVersion) {
  run({1, 2});
  want(1, {1, 2});
  hear(2, Kind::kFailed, 1);
  for (const WorkerId worker : {1, 2}) hear(worker, Kind::kDropped, 1);
  tell(event::Left{1});  // now each has a separate group: 2 and 3
  make(2, {1});
  got(1, 2, {1});
  for (CommGroupId group = 3; group <= 4; ++group) {
    EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
    make(group, {2});
    tell(event::Sent{group, 1, absl::UnavailableError("it broke")});
    hear(2, Kind::kDropped, group);
    tell(event::Left{group});
  }
  ASSERT_EQ(all<action::GiveUp>().size(), 1u);
  EXPECT_EQ(all<action::GiveUp>().front().worker, 2u);
  EXPECT_THAT(all<action::GiveUp>().front().why,
              StatusIs(StatusCode::kUnavailable, HasSubstr("after 3 communicators")));
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclBrokenGroups, StrikesCountUntilAWorkerHasGotAVersion) {
  join({1});
  pass(absl::Milliseconds(100));
  for (CommGroupId group = 1; group <= 3; ++group) {
    EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
    make(group, {1});
    warm(group, {1});
    hear(1, Kind::kFailed, group);  // it is alone in it
    hear(1, Kind::kDropped, group);
    tell(event::Left{group});
    pass(absl::Seconds(10));
  }
  EXPECT_EQ(all<action::GiveUp>().size(), 1u);
}

TEST_F(NcclBrokenGroups, WhereNoneCanBeMadeThoseThatRunGoOn) {
  run({1});
  join({2});
  want(1, {1, 2});
  got(1, 1, {1});
  hear(2, Kind::kReady, 2);
  tell(event::Made{.group = 2, .status = absl::FailedPreconditionError("restart the trainer")});
  EXPECT_FALSE(planner.poisoned());
  hear(2, Kind::kDropped, 2);
  tell(event::Left{2});
  ASSERT_EQ(all<action::GiveUp>().size(), 1u);
  EXPECT_EQ(all<action::GiveUp>().front().worker, 2u);
  EXPECT_THAT(all<action::GiveUp>().front().why, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("restart")));
  EXPECT_THAT(done(1), IsOk());
  tell(event::Removed{2});
  forget();
  pass(absl::Minutes(1));
  EXPECT_THAT(told(Kind::kAsk), IsEmpty()) << "there is one of all, and none is made for nothing";
  want(2, {1});
  got(2, 1, {1});
  EXPECT_THAT(done(2), IsOk());
}

// ---- an abort that hangs ----

class NcclPoisoned : public PlannerReplay {
 protected:
  void poison() {
    run({1, 2});
    want(1, {1, 2});
    tell(event::Removed{2});
    hear(1, Kind::kDropped, 1);
    forget();
    pass(absl::Seconds(10));
    ASSERT_TRUE(planner.poisoned());
  }
};

TEST_F(NcclPoisoned, EveryDeliveryFailsAndSaysWhatToDo) {
  poison();
  EXPECT_THAT(done(1), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("restart this process")));
  EXPECT_THAT(told(Kind::kOver), ElementsAre(1));
  EXPECT_THAT(all<action::Log>(), testing::SizeIs(1));
  want(2, {1});
  EXPECT_THAT(done(2), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("restart this process")));
}

TEST_F(NcclPoisoned, ItComesToRest) {
  poison();
  for (int i = 0; i < 10 && wakes_at; ++i) pass(absl::Seconds(60));
  EXPECT_FALSE(wakes_at.has_value()) << "a deadline in the past, for ever";
  join({3});
  for (int i = 0; i < 10 && wakes_at; ++i) pass(absl::Seconds(60));
  EXPECT_FALSE(wakes_at.has_value());
}

TEST_F(NcclPoisoned, NoCommunicatorIsMadeAnyMore) {
  run({1, 2});
  want(1, {1, 2});
  tell(event::Removed{2});
  hear(1, Kind::kDropped, 1);
  pass(absl::Seconds(9));
  join({3});
  want(2, {3});  // group 2 is asked
  pass(absl::Seconds(1));
  ASSERT_TRUE(planner.poisoned());
  forget();
  hear(3, Kind::kReady, 2);
  EXPECT_THAT(all<action::Make>(), IsEmpty());
  EXPECT_EQ(planner.deliveries(), 0u);
}

}  // namespace
}  // namespace bascule::inline v0::nccl
