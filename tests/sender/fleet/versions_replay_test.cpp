// Past bugs with sends, catch-ups and deadlines, as replays of events.
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CatchUpReplay : public Replay {
 protected:
  CatchUpReplay() {
    open();
    send();
  }
};

// The second try began before the release that answers the abort, which then ended its lease.
TEST_F(CatchUpReplay, ThatFailsIsTriedAgainOnceTheSlotWasReleased) {
  const WorkerId id = join(hello("late", 5));
  const Prepare first = told<Prepare>(id);
  say(id, Ready{.version = 1});
  told<Sealed>(id);
  say(id, Failed{.version = 1, .why = "this once"});
  told<Abort>(id);
  EXPECT_TRUE(told_nothing(id));
  release(id, first);
  EXPECT_EQ(take(id).slot, first.slot);
  EXPECT_TRUE(holds(5, first.slot));
}

// It already held the slot, so no release would come, and it was never retried.
TEST_F(CatchUpReplay, OfASlotThatItHoldsIsTriedAgainAtOnce) {
  Hello holds_it = hello("w", 1);
  holds_it.held = {{.slot = {kEpoch, 0}, .version = 1}};
  const WorkerId before = join(holds_it);
  told<Prepare>(before);  // and so it has a lease
  const WorkerId id = join(holds_it);
  told<Prepare>(id);
  say(id, Ready{.version = 1});
  told<Sealed>(id);
  say(id, Failed{.version = 1, .why = "this once"});
  told<Abort>(id);
  EXPECT_EQ(take(id).version, 1u);
}

// A worker that joined while a version was in flight stayed one version late.
TEST_F(CatchUpReplay, ThatEndsWithinASendIsFollowedByAnother) {
  const Version second = begin();
  const WorkerId id = join(hello("late", 5));
  take(id);
  seal(second);
  EXPECT_EQ(take(id).version, second);
}

// It had no room for an old version, whose slot the writer then lacked until the deadline.
TEST_F(CatchUpReplay, ThatHasNoRoomForAnOldVersionRestartsAtTheNewest) {
  const WorkerId id = join(hello("slow", 5));
  const Prepare old = told<Prepare>(id);  // and is not ready for it
  const Version second = send();
  EXPECT_THAT(status_of(second), IsOk());
  ASSERT_FALSE(ask()) << "its slot is the only other one";
  EXPECT_EQ(told<Abort>(id).version, old.version);
  release(id, old);
  EXPECT_TRUE(take_granted());
  EXPECT_EQ(told<Prepare>(id).version, second);
}

TEST_F(CatchUpReplay, ThatIsLateEndsTheMembershipAndNothingElse) {
  const WorkerId id = join(hello("late", 5));
  told<Prepare>(id);
  pass(absl::Minutes(1));
  EXPECT_THAT(why_closed(id), HasSubstr("version 1: no message that it is ready within 30s (timeout)"));
  EXPECT_TRUE(fleet.versions().tickets().empty());
  EXPECT_THAT(status_of(send()), IsOk());
}

// ---- deadlines ----

class DeadlineReplay : public Replay {
 protected:
  explicit DeadlineReplay(std::string_view options = "") : Replay(options) {
    open();
    send();
    quick_ = serve(hello("quick", 1));
    slow_ = serve(hello("slow", 2));
  }
  WorkerId quick_ = 0, slow_ = 0;
};

// The slow one had no room until the send's time was over; the other then had no time left, and was also evicted.
TEST_F(DeadlineReplay, OthersHaveTimeToPrepareOnceTheyAreTold) {
  const Version version = send();
  told<Prepare>(quick_);
  say(quick_, Ready{.version = version});
  pass(absl::Seconds(31));
  EXPECT_TRUE(peers.at(slow_).closed);
  told<Sealed>(quick_);
  pass(absl::Seconds(3));
  say(quick_, Prepared{.version = version});
  told<Decided>(quick_);
  say(quick_, Ack{.version = version, .stall_seconds = 0, .seconds = 0});
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kEvicted));
}

// If it never answered, no timer ran any longer, and the send hung.
TEST_F(DeadlineReplay, AWorkerThatWasToldLateAndNeverAnswersIsNotWaitedForForEver) {
  const Version version = send();
  say(quick_, Ready{.version = version});
  pass(absl::Minutes(2));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kEvicted, WorkerState::kEvicted));
}

// The sender itself stood still: their timely messages waited in their sockets.
TEST_F(DeadlineReplay, WhatWorkersSaidInTimeIsReadBeforeTheyAreJudged) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) queued.emplace_back(id, Ready{.version = version, .copies_behind = false});
  pass(absl::Seconds(31));
  EXPECT_FALSE(peers.at(quick_).closed);
  EXPECT_FALSE(peers.at(slow_).closed);
}

TEST_F(DeadlineReplay, AnEngineThatLoadsHasALoadsTimeAndNoMore) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Prepared{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Loading{.version = version});
  pass(absl::Seconds(100));
  EXPECT_FALSE(peers.at(quick_).closed);
  const SenderStatus status = fleet.status({});
  for (const WorkerStatus& worker : status.workers) EXPECT_EQ(worker.state, "loading");
  say(quick_, Ack{.version = version, .stall_seconds = 0, .seconds = 100});
  pass(absl::Seconds(21));
  EXPECT_THAT(why_closed(slow_), HasSubstr("its engine has not loaded it within 2m (load_timeout)"));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kEvicted));
}

TEST_F(DeadlineReplay, EachEngineThatLoadsIsJudgedByItsOwnTime) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Prepared{.version = version});
  say(quick_, Loading{.version = version});
  pass(absl::Seconds(3));
  say(slow_, Loading{.version = version});
  pass(absl::Seconds(118));
  EXPECT_TRUE(peers.at(quick_).closed);
  EXPECT_FALSE(peers.at(slow_).closed);
  pass(absl::Seconds(3));
  EXPECT_TRUE(peers.at(slow_).closed);
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kEvicted, WorkerState::kEvicted));
}

TEST_F(DeadlineReplay, AWorkerThatIsLateWithItsAckIsEvictedAndTheSendSettles) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Prepared{.version = version});
  say(quick_, Ack{.version = version, .stall_seconds = 0, .seconds = 0});
  pass(absl::Seconds(6));
  EXPECT_THAT(why_closed(slow_), HasSubstr("no ack within 5s (flip_timeout)"));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kEvicted));
}

class LongFlip : public DeadlineReplay {
 protected:
  LongFlip() : DeadlineReplay("flip_timeout=9999999h") {}
};

// The sum of the clock and this duration lay in the past, so that every worker was late with its ack at once.
TEST_F(LongFlip, IsNotOverAtOnce) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Prepared{.version = version});
  pass(absl::Hours(24 * 300));
  for (const WorkerId id : {quick_, slow_}) say(id, Ack{.version = version});
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kServing));
}

class EachDeadlineReplay : public DeadlineReplay {
 protected:
  EachDeadlineReplay() : DeadlineReplay("commit=each&timeout=4s&flip_timeout=2s") {}
};

// The ones that were told had the time of those that were still to prepare.
TEST_F(EachDeadlineReplay, AnAckIsDueOneFlipTimeoutAfterItsOwnDecision) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  for (const WorkerId id : {quick_, slow_}) say(id, Prepared{.version = version});
  say(quick_, Ack{.version = version});
  pass(absl::Milliseconds(1900));
  EXPECT_FALSE(peers.at(slow_).closed);
  pass(absl::Milliseconds(200));
  EXPECT_THAT(why_closed(slow_), HasSubstr("no ack within 2s (flip_timeout)"));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kEvicted));
}

// The ones that were still to prepare had the time of those that were told, and the error named flip_timeout.
TEST_F(EachDeadlineReplay, AWorkerThatIsToPrepareIsJudgedByTimeout) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  say(quick_, Prepared{.version = version});
  pass(absl::Seconds(1));
  say(quick_, Ack{.version = version});
  pass(absl::Milliseconds(2900));
  EXPECT_FALSE(peers.at(slow_).closed);
  pass(absl::Milliseconds(200));
  EXPECT_THAT(why_closed(slow_), HasSubstr("no message that it is prepared within 4s (timeout)"));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kEvicted));
}

TEST_F(EachDeadlineReplay, AWorkerThatPreparesLastHasAFlipTimeoutOfItsOwn) {
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  say(quick_, Prepared{.version = version});
  say(quick_, Ack{.version = version});
  pass(absl::Milliseconds(3900));
  say(slow_, Prepared{.version = version});
  pass(absl::Milliseconds(1900));
  EXPECT_FALSE(peers.at(slow_).closed);
  say(slow_, Ack{.version = version});
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kServing));
}

TEST_F(EachDeadlineReplay, AnErrorNamesTheShorterLimitOfAStepThatBeganLate) {
  const Version version = begin();
  pass(absl::Seconds(10));  // it took long to write
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  seal(version);
  say(quick_, Prepared{.version = version});
  say(quick_, Ack{.version = version});
  pass(absl::Milliseconds(1900));
  EXPECT_FALSE(peers.at(slow_).closed);
  pass(absl::Milliseconds(200));
  EXPECT_THAT(why_closed(slow_), HasSubstr("no message that it is prepared within 2s (flip_timeout)"));
}

TEST_F(DeadlineReplay, AVersionThatIsNotDeliveredInTimeIsAbortedOnceTheSlotIsBack) {
  delivers_at_once = false;
  const Version version = send();
  for (const WorkerId id : {quick_, slow_}) say(id, Ready{.version = version});
  pass(absl::Minutes(1));
  told<Prepare>(quick_);
  told<Abort>(quick_);
  EXPECT_EQ(status_of(version).code(), absl::StatusCode::kUnknown) << "the delivery reads the slot";
  finish_delivery();
  EXPECT_EQ(status_of(version).code(), absl::StatusCode::kDeadlineExceeded);
}

// ---- deliveries ----

// The delivery reads the slot until it reports its end, although its only worker is gone.
TEST_F(CatchUpReplay, ThatEveryoneLeftHoldsItsSlotUntilItsDeliveryHasEnded) {
  delivers_at_once = false;
  const WorkerId late = join(hello("late", 5));
  const Prepare old = told<Prepare>(late);
  say(late, Ready{.version = old.version});
  ASSERT_EQ(deliveries.size(), 1u);
  const Ticket ticket = deliveries.front().ticket;
  hang_up(late);
  tell(event::HolderGone{5});
  EXPECT_THAT(stopped, ElementsAre(ticket));
  delivers_at_once = true;
  const action::Deliver under_way = deliveries.front();
  deliveries.clear();
  EXPECT_THAT(status_of(send()), IsOk());
  EXPECT_FALSE(ask()) << "the other slot is published, and this one is still read";
  tell(event::Delivered{under_way.ticket, absl::OkStatus()});
  EXPECT_EQ(take_granted()->slot, old.slot);
}

class WhileWrittenReplay : public Replay {
 protected:
  WhileWrittenReplay() : Replay("", {true, false, false, true}) {
    delivers_at_once = false;
    open();
    id_ = join(hello("w", 1));
  }
  WorkerId id_ = 0;
};

TEST_F(WhileWrittenReplay, ADeliveryBeginsAsSoonAsTheWorkersAreReadyAndTheSealComesBehind) {
  const std::optional<Grant> grant = ask();
  ASSERT_TRUE(grant && grant->in_pieces);
  const Version version = announce(*grant);
  EXPECT_TRUE(deliveries.empty());
  say(id_, Ready{.version = version});
  ASSERT_EQ(deliveries.size(), 1u);
  seal(version);
  told<Prepare>(id_);
  EXPECT_TRUE(peers.at(id_).said.empty()) << "the bytes are on their way";
  finish_delivery();
  told<Sealed>(id_);
}

TEST_F(WhileWrittenReplay, AWriterThatGivesUpStopsTheDeliveryAndTheSlotStaysUntilThatHasEnded) {
  const Version version = announce(*ask());
  say(id_, Ready{.version = version});
  abandon(version);
  EXPECT_THAT(stopped, ElementsAre(deliveries.front().ticket));
  told<Prepare>(id_);
  told<Abort>(id_);
  EXPECT_FALSE(settled.contains(version)) << "the slot is still read";
  finish_delivery();
  EXPECT_TRUE(settled.contains(version));
}

TEST_F(WhileWrittenReplay, ALoanIsDeliveredOnceItIsWhole) {
  Grant grant = *ask();
  grant.in_pieces = false;  // as of a loan
  const Version version = announce(grant);
  say(id_, Ready{.version = version});
  EXPECT_TRUE(deliveries.empty());
  seal(version);
  EXPECT_EQ(deliveries.size(), 1u);
}

// ---- what may not be aborted ----

// It cannot be withdrawn: the scheme may have told other processes.
TEST(PublishingReplay, AVersionThatAllLoseWhileItIsPublishedIsNotAborted) {
  FleetWorld world("commit=each", {false, true, false});
  world.register_layout();
  world.open_slots();
  Hello hello;
  hello.worker = "w";
  hello.instance = 1;
  const WorkerId id = world.greet(hello);
  const Version version = world.announce(*world.ask());
  world.seal(version);
  world.say(id, Ready{.version = version, .copies_behind = false});
  world.say(id, Prepared{.version = version});
  ASSERT_EQ(world.publishes.size(), 1u);
  world.hang_up(id);
  world.finish_publish();
  EXPECT_EQ(world.fleet.published(), version);
  EXPECT_TRUE(world.settled.at(version).ok());
}

TEST(PublishingReplay, AnErrorAbortsTheVersionForAll) {
  FleetWorld world("", {false, true, false});
  world.register_layout();
  world.open_slots();
  const Version version = world.announce(*world.ask());
  world.seal(version);
  world.finish_publish(absl::UnavailableError("the disk is full"));
  EXPECT_EQ(world.fleet.published(), 0u);
  EXPECT_THAT(message_of(world.settled.at(version).status()), HasSubstr("publish version 1: the disk is full"));
}

}  // namespace
}  // namespace bascule::test
