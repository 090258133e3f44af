// Every line of the table in round.h, and what does not move a round.
#include "sender/round.h"

#include <gmock/gmock.h>

#include "transport/text.h"

namespace bascule {
namespace {

using Action = Round::Action;
using Phase = Round::Phase;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr WorkerId kA = 1, kB = 2, kStranger = 9;

constexpr Round::Rules kDelivers = {.in_place = false, .delivers = true, .each = false, .persists = false};

Round round_of(std::vector<Round::Participant> workers = {{kA, "a"}, {kB, "b"}}, Round::Rules rules = kDelivers) {
  return Round({.version = 7, .slot = {3, 1}, .bytes = 100, .digest = std::nullopt}, std::move(workers), rules);
}

// A decision that the scheme agrees to, and everybody told.
void decide(Round& round) {
  EXPECT_EQ(round.next(), Action::kDecide);
  EXPECT_EQ(round.next(), Action::kNone) << "the scheme has not published it";
  round.decided(absl::OkStatus());
}

std::string text(const absl::Status& status) { return std::string(message_of(status)); }

// A round of a and b, taken to where the phase begins that is asked for, with nothing more due.
Round round_in(Phase phase) {
  Round round = round_of();
  if (phase == Phase::kWriting) return round;
  round.sealed(Digest{.low = 1, .high = 2});
  if (phase == Phase::kSealed) return round;
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(round.next(), Action::kDeliver);
  if (phase == Phase::kDelivering) return round;
  round.delivered(absl::OkStatus());
  EXPECT_EQ(round.next(), Action::kAnnounce);
  if (phase == Phase::kPreparing) return round;
  round.prepared(kA), round.prepared(kB);
  decide(round);
  EXPECT_EQ(round.next(), Action::kCommit);
  if (phase == Phase::kCommitting) return round;
  round.acked(kA, 0.5, 0.25), round.acked(kB, 0.75, 0.125);
  EXPECT_EQ(round.next(), Action::kSettle);
  return round;
}

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
  EXPECT_EQ(round.next(), Action::kNone);
  round.sealed(std::nullopt);
  EXPECT_EQ(round.next(), Action::kDeliver);
  EXPECT_EQ(round.next(), Action::kNone) << "the scheme has not delivered";
  round.delivered(absl::OkStatus());
  EXPECT_EQ(round.next(), Action::kAnnounce);
  decide(round);
  EXPECT_EQ(round.next(), Action::kSettle) << "there is nobody to tell";
  EXPECT_EQ(round.next(), Action::kNone);
}

TEST(Round, WaitsForEveryWorkerInEachPhase) {
  Round round = round_in(Phase::kSealed);
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.ready(kB);
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA));

  round = round_in(Phase::kDelivering);
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), IsEmpty()) << "it is the scheme that is late";

  round = round_in(Phase::kPreparing);
  round.prepared(kA);
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kB));

  round = round_in(Phase::kCommitting);
  round.acked(kB, 0, 0);
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA));
}

TEST(Round, TakesReadyBeforeTheLastByteIsIn) {
  Round round = round_of();
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(round.next(), Action::kNone);
  round.sealed(std::nullopt);
  EXPECT_EQ(round.next(), Action::kDeliver);
}

TEST(Round, TakesNoWordThatComesTooEarly) {
  for (const Phase phase : {Phase::kWriting, Phase::kSealed, Phase::kDelivering}) {
    Round round = round_in(phase);
    round.prepared(kA), round.prepared(kB);
    round.acked(kA, 1, 1), round.acked(kB, 1, 1);
    if (phase == Phase::kWriting) round.sealed(std::nullopt);
    round.ready(kA), round.ready(kB);
    EXPECT_EQ(round.next(), phase == Phase::kDelivering ? Action::kNone : Action::kDeliver);
    round.delivered(absl::OkStatus());
    EXPECT_EQ(round.next(), Action::kAnnounce);
    EXPECT_EQ(round.next(), Action::kNone) << "nobody verified what was not announced";
    round.prepared(kA), round.prepared(kB);
    decide(round);
    EXPECT_EQ(round.next(), Action::kCommit);
    EXPECT_EQ(round.next(), Action::kNone) << "nobody flipped before the decision";
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
  EXPECT_EQ(round.next(), Action::kSettle);
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
    for (Action due = round.next(); due != Action::kSettle; due = round.next()) {
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
  EXPECT_EQ(round.next(), Action::kSettle);
  EXPECT_EQ(text(round.reports()[0].error), "silent");
}

TEST(Round, KeepsTheAckOfAWorkerThatIsLostAfterIt) {
  Round round = round_in(Phase::kCommitting);
  round.acked(kA, 1, 0);
  round.lost(kA, unavailable("hung up after it flipped"));
  round.acked(kB, 1, 0);
  EXPECT_EQ(round.next(), Action::kSettle);
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
    EXPECT_EQ(round.next(), Action::kAbort);
    EXPECT_EQ(round.next(), Action::kNone) << "told once";
    round.failed(kA, "too");
    round.abort(absl::InternalError("too"));
    round.sealed(std::nullopt), round.prepared(kA), round.delivered(absl::OkStatus());
    EXPECT_EQ(round.next(), Action::kNone);
    EXPECT_THAT(text(round.why_aborted()), HasSubstr("worker b")) << "the first reason stays";
  }
}

TEST(Round, AbortsWhereTheSchemeCannotDeliver) {
  Round round = round_in(Phase::kDelivering);
  round.delivered(unavailable("link down"));
  EXPECT_EQ(round.phase(), Phase::kAborted);
  EXPECT_EQ(round.why_aborted().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(text(round.why_aborted()), "deliver version 7: link down");
  EXPECT_EQ(round.next(), Action::kAbort);
}

TEST(Round, AbortsWhereTheSchemeCannotPublish) {
  Round round = round_in(Phase::kPreparing);
  round.prepared(kA), round.prepared(kB);
  EXPECT_EQ(round.next(), Action::kDecide);
  round.decided(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(text(round.why_aborted()), "publish version 7: the disk is full");
  EXPECT_EQ(round.next(), Action::kAbort);
  EXPECT_EQ(round.next(), Action::kNone);
}

TEST(Round, PassesOverADeliveryThatThereIsNot) {
  Round round = round_of({{kA, "a"}}, {});
  round.sealed(std::nullopt), round.ready(kA);
  EXPECT_EQ(round.next(), Action::kAnnounce);
  EXPECT_EQ(round.phase(), Phase::kPreparing);
  EXPECT_EQ(round.next(), Action::kNone);
}

// ---- written where it is read ----

TEST(Round, InPlaceWaitsForEveryReaderToStepAside) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, {.in_place = true});
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.ready(kA);
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kB));
  round.ready(kB);
  EXPECT_EQ(round.next(), Action::kYielded);
  EXPECT_EQ(round.next(), Action::kNone) << "said once";
  round.sealed(std::nullopt);
  EXPECT_EQ(round.next(), Action::kAnnounce);
}

// ---- commit=each ----

TEST(Round, EachTakesAGroupWholeOrNotAtAll) {
  Round round = round_of({{kA, "a", "tp"}, {kB, "b", "tp"}, {3, "c"}}, {.each = true});
  round.sealed(std::nullopt);
  for (const WorkerId id : {kA, kB, WorkerId{3}}) round.ready(id);
  EXPECT_EQ(round.next(), Action::kAnnounce);
  round.prepared(kA);
  EXPECT_EQ(round.next(), Action::kNone) << "its group is not";
  round.failed(kB, "no room");
  EXPECT_EQ(round.next(), Action::kNone) << "nobody could flip to it";
  EXPECT_THAT(round.failed(), ElementsAre(kA, kB));
  round.prepared(3);
  decide(round);
  EXPECT_EQ(round.next(), Action::kCommit);
  EXPECT_THAT(round.to_commit(), ElementsAre(3));
  round.acked(3, 0, 0);
  EXPECT_EQ(round.next(), Action::kSettle);
  EXPECT_EQ(round.reports()[0].state, WorkerState::kFailed);
  EXPECT_THAT(text(round.reports()[0].error), HasSubstr("worker b"));
}

Round each_in_preparing() {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, {.each = true});
  round.sealed(std::nullopt), round.ready(kA), round.ready(kB);
  EXPECT_EQ(round.next(), Action::kAnnounce);
  EXPECT_EQ(round.next(), Action::kNone);
  return round;
}

TEST(Round, EachIsToldAsSoonAsItIsPrepared) {
  Round round = each_in_preparing();
  round.prepared(kB);
  decide(round);
  EXPECT_EQ(round.next(), Action::kCommit);
  EXPECT_THAT(round.to_commit(), ElementsAre(kB));
  EXPECT_EQ(round.next(), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.acked(kB, 1, 0);
  EXPECT_EQ(round.next(), Action::kNone);
  round.prepared(kA);
  EXPECT_EQ(round.next(), Action::kCommit);
  EXPECT_THAT(round.to_commit(), ElementsAre(kA));
  round.acked(kA, 1, 0);
  EXPECT_EQ(round.next(), Action::kSettle);
}

TEST(Round, EachTellsRanksOfAGroupTogether) {
  Round round = round_of({{kA, "a", "tp"}, {kB, "b", "tp"}, {3, "c"}}, {.each = true});
  round.sealed(std::nullopt);
  for (const WorkerId id : {kA, kB, WorkerId{3}}) round.ready(id);
  EXPECT_EQ(round.next(), Action::kAnnounce);
  round.prepared(kA), round.prepared(3);
  decide(round);
  EXPECT_EQ(round.next(), Action::kCommit);
  EXPECT_THAT(round.to_commit(), ElementsAre(3));
  EXPECT_EQ(round.next(), Action::kNone);
  round.prepared(kB);
  EXPECT_EQ(round.next(), Action::kCommit);
  EXPECT_THAT(round.to_commit(), ElementsAre(kA, kB));
}

TEST(Round, EachGoesOnWithoutAWorkerThatFailed) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before ? "before the decision" : "after it");
    Round round = each_in_preparing();
    if (before) round.failed(kA, "the digest differs");
    round.prepared(kB);
    decide(round);
    EXPECT_EQ(round.next(), Action::kCommit);
    if (!before) round.failed(kA, "the digest differs");
    round.prepared(kA);
    EXPECT_EQ(round.next(), Action::kNone) << "who failed is not told to flip";
    round.acked(kB, 1, 0);
    EXPECT_EQ(round.next(), Action::kSettle);
    EXPECT_EQ(round.reports()[0].state, WorkerState::kFailed);
    EXPECT_THAT(text(round.reports()[0].error), HasSubstr("the digest differs"));
    EXPECT_EQ(round.reports()[1].state, WorkerState::kServing);
  }
}

TEST(Round, EachAbortsWhereNobodyIsLeftToPrepareIt) {
  for (const bool lost : {false, true}) {
    Round round = each_in_preparing();
    round.failed(kA, "the digest differs");
    EXPECT_EQ(round.next(), Action::kNone);
    if (lost) round.lost(kB, unavailable("hung up"));
    if (!lost) round.failed(kB, "too");
    EXPECT_EQ(round.next(), Action::kAbort);
    EXPECT_THAT(text(round.why_aborted()), HasSubstr("worker a could not prepare"));
  }
}

// ---- durable ----

TEST(Round, SettlesOnceTheDiskHasItToo) {
  for (const bool disk_first : {false, true}) {
    Round round = round_of({{kA, "a"}}, {.persists = true});
    round.sealed(std::nullopt), round.ready(kA);
    EXPECT_EQ(round.next(), Action::kAnnounce);
    round.prepared(kA);
    decide(round);
    EXPECT_EQ(round.next(), Action::kCommit) << "it is readable before it is on the disk";
    EXPECT_EQ(round.next(), Action::kPersist);
    EXPECT_EQ(round.next(), Action::kNone);
    if (disk_first) round.persisted(absl::DataLossError("the disk said no"));
    if (!disk_first) round.acked(kA, 1, 0);
    EXPECT_EQ(round.next(), Action::kNone);
    if (disk_first) round.acked(kA, 1, 0);
    if (!disk_first) round.persisted(absl::OkStatus());
    EXPECT_EQ(round.next(), Action::kSettle);
    EXPECT_EQ(round.persist_status().ok(), !disk_first) << "an error is for the report: the version is served";
    EXPECT_GE(round.persist_seconds(), 0);
  }
}

TEST(Round, NeverAbortsAfterTheDecision) {
  for (const Phase phase : {Phase::kCommitting, Phase::kSettled}) {
    Round round = round_in(phase);
    round.failed(kA, "too late");
    round.abort(absl::InternalError("too late"));
    EXPECT_EQ(round.phase(), phase);
    EXPECT_TRUE(round.why_aborted().ok());
  }
}

TEST(Round, MeasuresItsPhases) {
  const Round round = round_in(Phase::kCommitting);
  EXPECT_GE(round.seconds(Phase::kSealed, Phase::kPreparing), 0);
  EXPECT_EQ(round.seconds(Phase::kCommitting, Phase::kSettled), 0) << "not reached";
  const double whole = round.seconds(Phase::kWriting, Phase::kCommitting);
  const double parts =
      round.seconds(Phase::kWriting, Phase::kSealed) + round.seconds(Phase::kSealed, Phase::kDelivering) +
      round.seconds(Phase::kDelivering, Phase::kPreparing) + round.seconds(Phase::kPreparing, Phase::kCommitting);
  EXPECT_NEAR(whole, parts, 1e-6);
}

}  // namespace
}  // namespace bascule
