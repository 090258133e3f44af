// Every line of the table in round.h, and events that do not move a round.
#include "sender/fleet/round_fixture.h"

#include <gmock/gmock.h>

namespace bascule::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Round, GoesFromWritingToSettled) {
  const Round round = round_in(Phase::kSettled);
  EXPECT_EQ(round.phase(), Phase::kSettled);
  EXPECT_FALSE(round.under_way());
  EXPECT_EQ(round.publication().digest, (Digest{.low = 1, .high = 2}));
  const std::vector<WorkerReport> reports = round.reports();
  ASSERT_EQ(reports.size(), 2);
  EXPECT_EQ(reports[0].worker, "a");
  EXPECT_EQ(reports[0].state, WorkerState::kServing);
  EXPECT_EQ(reports[0].seconds, 0.5);
  EXPECT_EQ(reports[0].stall_seconds, 0.25);
  EXPECT_EQ(reports[1].worker, "b");
  EXPECT_EQ(reports[1].seconds, 0.75);
}

TEST(Round, IsDoneWithoutWorkers) {
  Round round = round_of({});
  EXPECT_EQ(next(round), Action::kNone);
  round.sealed(std::nullopt);
  EXPECT_EQ(next(round), Action::kDeliver);
  EXPECT_EQ(next(round), Action::kNone) << "the scheme has not delivered";
  round.delivered(absl::OkStatus());
  EXPECT_EQ(next(round), Action::kAnnounce);
  decide(round);
  EXPECT_EQ(next(round), Action::kSettle) << "there is no worker to tell";
  EXPECT_EQ(next(round), Action::kNone);
}

TEST(Round, WaitsForEveryWorkerInEachPhase) {
  Round round = round_in(Phase::kSealed);
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.ready(kB);
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA));

  round = round_in(Phase::kDelivering);
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), IsEmpty()) << "the scheme is late, not a worker";

  round = round_in(Phase::kPreparing);
  round.prepared(kA);
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kB));

  round = round_in(Phase::kCommitting);
  round.acked(kB, 0, 0);
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA));
}

TEST(Round, AWorkerThatLoadsHasTimeOfItsOwn) {
  const Clock::time_point start{};
  const auto at = [start](int seconds) { return start + std::chrono::seconds(seconds); };
  const auto by = [&](int seconds) {
    return Limit{.option = "load_timeout", .length = absl::Seconds(seconds), .until = at(seconds)};
  };
  Round round = round_in(Phase::kCommitting);
  round.limit_acks(by(5));
  EXPECT_EQ(round.next_deadline(), at(5));
  round.loading(kA, by(10));
  EXPECT_TRUE(round.is_loading(kA));
  EXPECT_THAT(round.late(at(9)), ElementsAre(kB));
  EXPECT_THAT(round.late(at(10)), ElementsAre(kA, kB));
  EXPECT_EQ(round.next_deadline(at(5)), at(10));
  round.loading(kA, by(20));  // it still loaded another one
  EXPECT_EQ(round.next_deadline(at(5)), at(20));
  round.loading(kA, by(30));
  EXPECT_EQ(round.next_deadline(at(5)), at(20)) << "loading has a deadline";
  round.acked(kA, 0, 0);
  EXPECT_FALSE(round.is_loading(kA));
  EXPECT_EQ(round.next_deadline(at(5)), std::nullopt);
  EXPECT_THAT(round.late(at(99)), ElementsAre(kB));
}

TEST(Round, AWordOfLoadingBeforeTheDecisionChangesNothing) {
  Round round = round_in(Phase::kPreparing);
  round.loading(kA, {});
  EXPECT_FALSE(round.is_loading(kA));
}

TEST(Round, TakesReadyBeforeTheLastByteIsIn) {
  Round round = round_of();
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(next(round), Action::kNone);
  round.sealed(std::nullopt);
  EXPECT_EQ(next(round), Action::kDeliver);
}

TEST(Round, TakesNoWordThatComesTooEarly) {
  for (const Phase phase : {Phase::kWriting, Phase::kSealed, Phase::kDelivering}) {
    Round round = round_in(phase);
    round.prepared(kA), round.prepared(kB);
    round.acked(kA, 1, 1), round.acked(kB, 1, 1);
    if (phase == Phase::kWriting) round.sealed(std::nullopt);
    round.ready(kA), round.ready(kB);
    EXPECT_EQ(next(round), phase == Phase::kDelivering ? Action::kNone : Action::kDeliver);
    round.delivered(absl::OkStatus());
    EXPECT_EQ(next(round), Action::kAnnounce);
    EXPECT_EQ(next(round), Action::kNone) << "no worker can verify what was not announced";
    round.prepared(kA), round.prepared(kB);
    decide(round);
    EXPECT_EQ(next(round), Action::kDecided);
    EXPECT_EQ(next(round), Action::kNone) << "no worker flips before the decision";
  }
}

TEST(Round, TakesEachWordOnce) {
  Round round = round_in(Phase::kCommitting);
  round.sealed(Digest{.low = 5, .high = 5});
  round.delivered(absl::InternalError("late"));
  round.prepared(kA);
  EXPECT_EQ(round.phase(), Phase::kCommitting);
  round.acked(kA, 0.5, 0.25);
  round.acked(kA, 9, 9);
  round.acked(kB, 0.5, 0.25);
  EXPECT_EQ(next(round), Action::kSettle);
  round.acked(kB, 9, 9);
  for (const WorkerReport& report : round.reports()) {
    EXPECT_EQ(report.seconds, 0.5);
    EXPECT_EQ(report.stall_seconds, 0.25);
  }
  EXPECT_EQ(round.publication().digest, (Digest{.low = 1, .high = 2}));
}

TEST(Round, KnowsNoStrangers) {
  Round round = round_in(Phase::kSealed);
  round.ready(kStranger), round.lost(kStranger, unavailable("x")), round.failed(kStranger, "x");
  EXPECT_TRUE(round.under_way());
  EXPECT_THAT(round.remaining(), ElementsAre(kA, kB));
  EXPECT_EQ(round.reports().size(), 2);
}

TEST(Round, GoesOnWithoutAWorkerThatIsLost) {
  for (const Phase phase :
       {Phase::kWriting, Phase::kSealed, Phase::kDelivering, Phase::kPreparing, Phase::kCommitting}) {
    Round round = round_in(phase);
    round.lost(kA, unavailable("worker a hung up"));
    EXPECT_THAT(round.remaining(), ElementsAre(kB));
    round.sealed(std::nullopt);
    round.ready(kA), round.ready(kB);
    for (Action due = next(round); due != Action::kSettle; due = next(round)) {
      if (due == Action::kDeliver) round.delivered(absl::OkStatus());
      if (due == Action::kDecide) round.decided(absl::OkStatus());
      if (due != Action::kNone) continue;
      if (round.phase() == Phase::kDelivering) round.delivered(absl::OkStatus());
      ASSERT_NE(round.phase(), Phase::kSealed);
      round.prepared(kB);
      round.acked(kB, 1, 0);
      round.acked(kA, 1, 0);  // too late
    }
    const std::vector<WorkerReport> reports = round.reports();
    EXPECT_EQ(reports[0].state, WorkerState::kEvicted);
    EXPECT_EQ(text(reports[0].error), "worker a hung up");
    EXPECT_EQ(reports[1].state, WorkerState::kServing);
    EXPECT_TRUE(reports[1].error.ok());
  }
}

TEST(Round, SettlesWhenTheLastLateWorkerIsLost) {
  Round round = round_in(Phase::kCommitting);
  round.acked(kB, 1, 0);
  round.lost(kA, unavailable("silent"));
  round.lost(kA, unavailable("again"));
  EXPECT_EQ(next(round), Action::kSettle);
  EXPECT_EQ(text(round.reports()[0].error), "silent");
}

TEST(Round, KeepsTheAckOfAWorkerThatIsLostAfterIt) {
  Round round = round_in(Phase::kCommitting);
  round.acked(kA, 1, 0);
  round.lost(kA, unavailable("hung up after it flipped"));
  round.acked(kB, 1, 0);
  EXPECT_EQ(next(round), Action::kSettle);
  EXPECT_EQ(round.reports()[0].state, WorkerState::kServing);
}

TEST(Round, AbortsForAllWhereOneFails) {
  for (const Phase phase : {Phase::kWriting, Phase::kSealed, Phase::kDelivering, Phase::kPreparing}) {
    Round round = round_in(phase);
    round.failed(kB, "the digest differs");
    EXPECT_EQ(round.phase(), Phase::kAborted);
    EXPECT_FALSE(round.under_way());
    EXPECT_EQ(text(round.why_aborted()), "worker b could not prepare version 7: the digest differs");
    EXPECT_EQ(round.reports()[1].state, WorkerState::kFailed);
    EXPECT_EQ(next(round), Action::kAbort);
    EXPECT_EQ(next(round), Action::kNone) << "told once";
    round.failed(kA, "too");
    round.abort(absl::InternalError("too"));
    round.sealed(std::nullopt), round.prepared(kA), round.delivered(absl::OkStatus());
    EXPECT_EQ(next(round), Action::kNone);
    EXPECT_THAT(text(round.why_aborted()), HasSubstr("worker b")) << "the first reason stays";
  }
}

TEST(Round, AbortsWhereTheSchemeCannotDeliver) {
  Round round = round_in(Phase::kDelivering);
  round.delivered(unavailable("link down"));
  EXPECT_EQ(round.phase(), Phase::kAborted);
  EXPECT_EQ(round.why_aborted().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(text(round.why_aborted()), "deliver version 7: link down");
  EXPECT_EQ(next(round), Action::kAbort);
}

TEST(Round, AbortsWhereTheSchemeCannotPublish) {
  Round round = round_in(Phase::kPreparing);
  round.prepared(kA), round.prepared(kB);
  EXPECT_EQ(next(round), Action::kDecide);
  round.decided(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(text(round.why_aborted()), "publish version 7: the disk is full");
  EXPECT_EQ(next(round), Action::kAbort);
  EXPECT_EQ(next(round), Action::kNone);
}

TEST(Round, PassesOverADeliveryThatThereIsNot) {
  Round round = round_of({{kA, "a"}}, {});
  round.sealed(std::nullopt), round.ready(kA);
  EXPECT_EQ(next(round), Action::kAnnounce);
  EXPECT_EQ(round.phase(), Phase::kPreparing);
  EXPECT_EQ(next(round), Action::kNone);
}

// ---- a delivery that begins while the slot is written ----

TEST(Round, DeliversWhileItIsWrittenOnceEveryWorkerIsReady) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, kDeliversBehind);
  round.ready(kA);
  EXPECT_EQ(next(round), Action::kNone) << "b has no room yet";
  round.ready(kB);
  EXPECT_EQ(next(round), Action::kDeliver);
  EXPECT_EQ(round.phase(), Phase::kWriting);
  EXPECT_EQ(next(round), Action::kNone) << "asked for once";
  round.sealed(Digest{.low = 1, .high = 2});
  EXPECT_EQ(next(round), Action::kNone) << "the last bytes have not left";
  EXPECT_EQ(round.phase(), Phase::kDelivering);
  round.delivered(absl::OkStatus());
  EXPECT_EQ(next(round), Action::kAnnounce);
}

TEST(Round, AnnouncesAtTheSealWhatHasLeftByThen) {
  Round round = round_of({{kA, "a"}}, kDeliversBehind);
  round.ready(kA);
  EXPECT_EQ(next(round), Action::kDeliver);
  round.delivered(absl::OkStatus());
  EXPECT_EQ(next(round), Action::kNone) << "its digest is not known yet";
  round.sealed(Digest{.low = 1, .high = 2});
  EXPECT_EQ(next(round), Action::kAnnounce);
  EXPECT_EQ(next(round), Action::kNone);
}

TEST(Round, DeliversBehindTheSealWhereAWorkerWasNotReadyBefore) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, kDeliversBehind);
  round.ready(kA);
  round.sealed(std::nullopt);
  EXPECT_EQ(next(round), Action::kNone);
  round.lost(kB, unavailable("gone"));
  EXPECT_EQ(next(round), Action::kDeliver);
  EXPECT_EQ(round.phase(), Phase::kDelivering);
}

TEST(Round, AbortsAtOnceWhereADeliveryFailsWhileItIsWritten) {
  Round round = round_of({{kA, "a"}}, kDeliversBehind);
  round.ready(kA);
  EXPECT_EQ(next(round), Action::kDeliver);
  round.delivered(unavailable("link down"));
  EXPECT_EQ(next(round), Action::kAbort);
  EXPECT_EQ(text(round.why_aborted()), "deliver version 7: link down");
}

// ---- decided with the seal ----

constexpr Round::Rules kAhead = {
    .single_copy = false, .delivers = false, .behind = false, .each = false, .persists = false, .ahead = true};

Round announced(std::vector<Round::WorkerIdentity> workers, Round::Rules rules = kAhead) {
  Round round = round_of(std::move(workers), rules);
  round.sealed(std::nullopt);
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(next(round), Action::kAnnounce);
  if (round.decides_ahead()) round.told_ahead();
  return round;
}

TEST(Round, DecidesAheadForAWorkerThatIsAlone) {
  Round round = announced({{kA, "a"}});
  EXPECT_TRUE(round.was_told_ahead());
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_TRUE(round.may_flip(kA));
  EXPECT_FALSE(round.was_told(kA)) << "it is still late with `prepared`, not with its ack";
  EXPECT_THAT(round.late(), ElementsAre(kA));
  round.prepared(kA);
  EXPECT_EQ(next(round), Action::kDecide);
  round.decided(absl::OkStatus());
  EXPECT_EQ(next(round), Action::kDecided) << "its limit for the ack begins";
  EXPECT_THAT(round.to_tell(), ElementsAre(kA));
  round.acked(kA, 0, 0);
  EXPECT_EQ(next(round), Action::kSettle);
}

TEST(Round, AbortsWhatAWorkerThatWasToldAheadCannotPrepare) {
  Round round = announced({{kA, "a"}});
  round.failed(kA, "its disk is full");
  EXPECT_EQ(next(round), Action::kAbort);
  EXPECT_THAT(text(round.why_aborted()), HasSubstr("its disk is full"));
}

TEST(Round, DecidesAheadForTheLastOfSeveral) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, kAhead);
  round.sealed(std::nullopt);
  round.ready(kA);
  round.lost(kB, absl::UnavailableError("gone"));
  EXPECT_EQ(next(round), Action::kAnnounce);
  EXPECT_TRUE(round.decides_ahead());
}

TEST(Round, DecidesAheadForNoneThatWaitsForAnother) {
  EXPECT_FALSE(announced({{kA, "a"}, {kB, "b"}}).was_told_ahead());
  EXPECT_FALSE(announced({{kA, "a", "group"}}).was_told_ahead()) << "a group's ranks flip together";
  EXPECT_FALSE(announced({}).was_told_ahead());
  Round::Rules rules = kAhead;
  rules.ahead = false;
  EXPECT_FALSE(announced({{kA, "a"}}, rules).was_told_ahead());
}

TEST(Round, MeasuresItsPhases) {
  const Round round = round_in(Phase::kCommitting);
  EXPECT_GT(round.seconds(Phase::kSealed, Phase::kPreparing), 0);
  EXPECT_EQ(round.seconds(Phase::kCommitting, Phase::kSettled), 0) << "not reached";
  const double whole = round.seconds(Phase::kWriting, Phase::kCommitting);
  const double parts =
      round.seconds(Phase::kWriting, Phase::kSealed) + round.seconds(Phase::kSealed, Phase::kDelivering) +
      round.seconds(Phase::kDelivering, Phase::kPreparing) + round.seconds(Phase::kPreparing, Phase::kCommitting);
  EXPECT_NEAR(whole, parts, 1e-6);
}

}  // namespace
}  // namespace bascule::test
