// Replays: which circle is made when, what goes through it, and what becomes of it. Each rule is a test.
#include <bascule/schemes/nccl/circles.h>

#include <gmock/gmock.h>

#include <deque>

#include "support/status.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = Word::Kind;
using State = Circles::State;

constexpr std::uint64_t kPiece = 10;

class NcclCircles : public testing::Test {
 protected:
  void tell(Event event) {
    for (Action& action : circles.on(std::move(event), now)) {
      if (const auto* wake = std::get_if<action::WakeAt>(&action)) wakes_at = wake->at;
      actions.push_back(std::move(action));
    }
  }
  void pass(absl::Duration time) {
    now += absl::ToChronoNanoseconds(time);
    if (!wakes_at || *wakes_at > now) return;
    wakes_at.reset();
    tell(event::Tick{});
  }
  void hear(WorkerId worker, Kind kind, CircleId circle, std::uint64_t number = 0, std::uint64_t from = 0) {
    tell(event::Heard{worker, {.kind = kind, .circle = circle, .number = number, .from = from, .why = "broken"}});
  }
  // All actions of one kind since then, but wakes.
  template <typename T>
  std::vector<T> all() {
    std::vector<T> found;
    for (const Action& action : actions)
      if (const auto* is = std::get_if<T>(&action)) found.push_back(*is);
    return found;
  }
  std::vector<WorkerId> told(Kind kind) {
    std::vector<WorkerId> workers;
    for (const action::Say& say : all<action::Say>())
      if (say.word.kind == kind) workers.push_back(say.worker);
    for (const action::Deliver& deliver : all<action::Deliver>())
      if (deliver.word.kind == kind) workers.push_back(deliver.worker);
    return workers;
  }
  void forget() { actions.clear(); }
  int count(State state) {
    const auto states = circles.states();
    const auto found = states.find(state);
    return found == states.end() ? 0 : found->second;
  }

  void join(std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) tell(event::Joined{worker});
  }
  // From ask to made.
  void make(CircleId circle, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, Kind::kReady, circle);
    for (const WorkerId worker : workers) hear(worker, Kind::kMade, circle);
    tell(event::Made{circle, absl::OkStatus()});
  }
  void warm(CircleId circle, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, Kind::kWarmed, circle);
    tell(event::Warmed{circle, absl::OkStatus()});
  }
  // A circle of all of them that runs.
  CircleId run(std::initializer_list<WorkerId> workers) {
    join(workers);
    pass(absl::Milliseconds(100));
    make(++last, workers);
    warm(last, workers);
    EXPECT_EQ(count(State::kRunning), 1);
    forget();
    return last;
  }
  void want(std::uint64_t number, std::vector<WorkerId> workers) {
    tell(event::Wanted{.number = number, .version = number + 100, .workers = std::move(workers)});
  }
  void got(std::uint64_t number, CircleId circle, std::initializer_list<WorkerId> workers) {
    for (const WorkerId worker : workers) hear(worker, Kind::kGot, circle, number);
    tell(event::Sent{circle, number, absl::OkStatus()});
  }
  absl::Status done(std::uint64_t number) {
    for (const action::Done& each : all<action::Done>())
      if (each.number == number) return each.status;
    return absl::UnknownError("it is not done");
  }

  Circles circles{CircleLimits{}, kPiece};
  Clock::time_point now{};
  std::optional<Clock::time_point> wakes_at;
  std::vector<Action> actions;
  CircleId last = 0;
};

TEST_F(NcclCircles, WorkersThatJoinTogetherAreOneCircle) {
  join({1, 2});
  pass(absl::Milliseconds(50));
  join({3});
  pass(absl::Milliseconds(60));
  EXPECT_THAT(actions, testing::Not(testing::Contains(testing::VariantWith<action::Say>(testing::_))));
  pass(absl::Milliseconds(50));
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2, 3));
}

TEST_F(NcclCircles, AnIdIsDrawnOnceAllHaveSaidReady) {
  join({1, 2});
  pass(absl::Milliseconds(100));
  hear(1, Kind::kReady, 1);
  EXPECT_THAT(all<action::Make>(), IsEmpty());
  hear(2, Kind::kReady, 1);
  ASSERT_EQ(all<action::Make>().size(), 1u);
  EXPECT_THAT(all<action::Make>().front().workers, ElementsAre(1, 2));
}

TEST_F(NcclCircles, ACircleWarmsBeforeItIsUsed) {
  join({1});
  pass(absl::Milliseconds(100));
  make(1, {1});
  EXPECT_THAT(told(Kind::kWarm), ElementsAre(1));
  want(1, {1});
  EXPECT_THAT(all<action::Broadcast>(), IsEmpty()) << "a first launch needs an idle device";
  warm(1, {1});
  EXPECT_EQ(all<action::Broadcast>().size(), 1u);
}

TEST_F(NcclCircles, WhatWaitsForACircleIsItsFirstBroadcast) {
  join({1});
  want(1, {1});
  make(1, {1});
  EXPECT_THAT(told(Kind::kWarm), IsEmpty());
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1));
  got(1, 1, {1});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclCircles, ADeliveryIsDoneOnceAllHaveItAndItsOwnPartIsSent) {
  run({1, 2});
  want(1, {1, 2});
  hear(1, Kind::kGot, 1, 1);
  tell(event::Sent{1, 1, absl::OkStatus()});
  EXPECT_THAT(all<action::Done>(), IsEmpty());
  hear(2, Kind::kGot, 1, 1);
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclCircles, AJoinerIsServedBesideTheOthersAndThenAmongThem) {
  run({1, 2});
  join({3});
  want(1, {1, 2, 3});
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1, 2)) << "at once, by the circle that runs";
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
  EXPECT_EQ(all<action::Broadcast>().front().circle, 3u);
}

TEST_F(NcclCircles, AVersionGoesOnWhereAllThatAreLeftHaveIt) {
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

TEST_F(NcclCircles, OneThatHadNotBegunBeginsAtTheStart) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  tell(event::Removed{3});
  hear(1, Kind::kDropped, 1, 1, 4 * kPiece);
  hear(2, Kind::kDropped, 1);
  tell(event::Left{1});
  make(2, {1, 2});
  EXPECT_EQ(all<action::Broadcast>().back().from, 0u);
}

TEST_F(NcclCircles, OneThatHasItAllIsNotSentToAgain) {
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

// Else the next part would wait for it in vain.
TEST_F(NcclCircles, GotBehindDroppedTakesAWorkerOutOfThePartThatWaits) {
  run({1, 2, 3});
  want(1, {1, 2, 3});
  tell(event::Removed{3});
  hear(1, Kind::kDropped, 1, 1, kPiece);
  hear(2, Kind::kDropped, 1, 1, kPiece);
  tell(event::Left{1});  // circle 2 of both is asked
  forget();
  hear(1, Kind::kGot, 1, 1);
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(2));
  make(3, {2});
  EXPECT_THAT(told(Kind::kAgain), ElementsAre(2));
  got(1, 3, {2});
  EXPECT_THAT(done(1), IsOk());
}

TEST_F(NcclCircles, AWorkerThatDoesNotTakeADeliveryHoldsNobody) {
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

TEST_F(NcclCircles, AStoppedOneRunsOutAndKeepsItsCircle) {
  run({1});
  want(1, {1});
  tell(event::Stopped{.number = 1, .whole = false});
  EXPECT_EQ(all<action::RunOut>().size(), 1u);
  got(1, 1, {1});
  EXPECT_THAT(done(1), StatusIs(StatusCode::kAborted, HasSubstr("given up")));
  EXPECT_THAT(all<action::Leave>(), IsEmpty());
}

TEST_F(NcclCircles, AStoppedOneWhosePiecesAreStuckIsLeftInTime) {
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

TEST_F(NcclCircles, ASilentWorkerIsGivenUpAndTheOthersGoOn) {
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

TEST_F(NcclCircles, ThreeCommunicatorsThatBreakAreEnough) {
  run({1});
  want(1, {1});
  for (CircleId circle = 1; circle <= 3; ++circle) {
    if (circle > 1) make(circle, {1});
    hear(1, Kind::kFailed, circle);
    hear(1, Kind::kDropped, circle);
    tell(event::Left{circle});
  }
  EXPECT_THAT(done(1), StatusIs(StatusCode::kUnavailable,
                                AllOf(HasSubstr("given up behind 3 communicators"), HasSubstr("broken"))));
  EXPECT_THAT(told(Kind::kOver), ElementsAre(1));
}

// The report of the version names what the sender said, not what workers made of it.
TEST_F(NcclCircles, ADeliveryIsDoneBeforeItsWorkersHearThatItIsOver) {
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

TEST_F(NcclCircles, AWorkerThatNeverJoinsAnyIsGivenUp) {
  join({1});
  want(1, {1});
  for (CircleId circle = 1; circle <= 3; ++circle) {
    EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
    hear(1, Kind::kFailed, circle);
  }
  EXPECT_EQ(all<action::GiveUp>().size(), 1u);
}

TEST_F(NcclCircles, ACircleThatRunsTakesBackStrikes) {
  join({1});
  CircleId circle = 0;
  for (int i = 0; i < 5; ++i) {
    want(static_cast<std::uint64_t>(i) + 1, {1});
    hear(1, Kind::kFailed, ++circle);
    make(++circle, {1});
    hear(1, Kind::kFailed, circle);  // it may be another one's death
    hear(1, Kind::kDropped, circle);
    tell(event::Left{circle});
    make(++circle, {1});
    got(static_cast<std::uint64_t>(i) + 1, circle, {1});
    tell(event::Sent{circle, 0, absl::UnavailableError("it broke")});
    hear(1, Kind::kDropped, circle);
    tell(event::Left{circle});
  }
  EXPECT_THAT(all<action::GiveUp>(), IsEmpty());
}

TEST_F(NcclCircles, ACircleThatBrokeWithoutAWordWhyIsMadeAgainAllTheSame) {
  run({1});
  tell(event::Heard{1, {.kind = Kind::kFailed, .circle = 1}});
  hear(1, Kind::kDropped, 1);
  tell(event::Left{1});
  pass(absl::Seconds(10));
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1));
}

class NcclPoisoned : public NcclCircles {
 protected:
  void poison() {
    run({1, 2});
    want(1, {1, 2});
    tell(event::Removed{2});
    hear(1, Kind::kDropped, 1);
    forget();
    pass(absl::Seconds(10));
    ASSERT_TRUE(circles.poisoned());
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
  want(2, {3});  // circle 2 is asked
  pass(absl::Seconds(1));
  ASSERT_TRUE(circles.poisoned());
  forget();
  hear(3, Kind::kReady, 2);
  EXPECT_THAT(all<action::Make>(), IsEmpty());
  EXPECT_EQ(circles.deliveries(), 0u);
}

// No rank of a circle is done before all have come: nobody knows which one did not.
TEST_F(NcclCircles, ACircleThatIsNotCompletedIsTakenApartAndTheBadWorkerGivenUp) {
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
  EXPECT_THAT(told(Kind::kAsk), ElementsAre(1, 2)) << "each is asked into a circle of its own";
  make(2, {1});
  EXPECT_THAT(told(Kind::kDeliver), ElementsAre(1)) << "the good one is served";
  hear(2, Kind::kReady, 3);
  pass(absl::Seconds(10));
  const auto given_up = all<action::GiveUp>();
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0].worker, 2u);
}

}  // namespace
}  // namespace bascule::inline v0::nccl
