// Rounds by other rules: a single copy, commit=each, durable.
#include "sender/fleet/round_fixture.h"

#include <gmock/gmock.h>

namespace bascule::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ---- single copy ----

TEST(Round, ASingleCopyWaitsForEveryReaderToYield) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, {.single_copy = true});
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.ready(kA);
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kB));
  round.ready(kB);
  EXPECT_EQ(next(round), Action::kYielded);
  EXPECT_EQ(next(round), Action::kNone) << "said once";
  round.sealed(std::nullopt);
  EXPECT_EQ(next(round), Action::kAnnounce);
}

TEST(Round, ASingleCopyIsAbortedWhileItIsWrittenAndNotSealedAnyMore) {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, {.single_copy = true});
  round.ready(kA), round.ready(kB);
  EXPECT_EQ(next(round), Action::kYielded);
  round.abort(absl::DeadlineExceededError("its loan was out for too long"));
  EXPECT_FALSE(round.yielded());
  EXPECT_EQ(next(round), Action::kAbort);
  EXPECT_THAT(round.remaining(), ElementsAre(kA, kB)) << "the workers to tell";
  round.sealed(Digest{});
  round.abort(absl::AbortedError("the loan was dropped"));
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_EQ(text(round.why_aborted()), "its loan was out for too long");
}

// ---- commit=each ----

TEST(Round, EachTakesAGroupWholeOrNotAtAll) {
  Round round = round_of({{kA, "a", "tp"}, {kB, "b", "tp"}, {3, "c"}}, {.each = true});
  round.sealed(std::nullopt);
  for (const WorkerId id : {kA, kB, WorkerId{3}}) round.ready(id);
  EXPECT_EQ(next(round), Action::kAnnounce);
  round.prepared(kA);
  EXPECT_EQ(next(round), Action::kNone) << "its group is not";
  round.failed(kB, "no room");
  EXPECT_EQ(next(round), Action::kNone) << "no worker could flip to it";
  EXPECT_THAT(round.failed(), ElementsAre(kA, kB));
  round.prepared(3);
  decide(round);
  EXPECT_EQ(next(round), Action::kDecided);
  EXPECT_THAT(round.to_tell(), ElementsAre(3));
  round.acked(3, 0, 0);
  EXPECT_EQ(next(round), Action::kSettle);
  EXPECT_EQ(round.reports()[0].state, WorkerState::kFailed);
  EXPECT_THAT(text(round.reports()[0].error), HasSubstr("worker b"));
}

Round each_in_preparing() {
  Round round = round_of({{kA, "a"}, {kB, "b"}}, {.each = true});
  round.sealed(std::nullopt), round.ready(kA), round.ready(kB);
  EXPECT_EQ(next(round), Action::kAnnounce);
  EXPECT_EQ(next(round), Action::kNone);
  return round;
}

TEST(Round, EachIsToldAsSoonAsItIsPrepared) {
  Round round = each_in_preparing();
  round.prepared(kB);
  decide(round);
  EXPECT_EQ(next(round), Action::kDecided);
  EXPECT_THAT(round.to_tell(), ElementsAre(kB));
  EXPECT_EQ(next(round), Action::kNone);
  EXPECT_THAT(round.late(), ElementsAre(kA, kB));
  round.acked(kB, 1, 0);
  EXPECT_EQ(next(round), Action::kNone);
  round.prepared(kA);
  EXPECT_EQ(next(round), Action::kDecided);
  EXPECT_THAT(round.to_tell(), ElementsAre(kA));
  round.acked(kA, 1, 0);
  EXPECT_EQ(next(round), Action::kSettle);
}

TEST(Round, EachTellsRanksOfAGroupTogether) {
  Round round = round_of({{kA, "a", "tp"}, {kB, "b", "tp"}, {3, "c"}}, {.each = true});
  round.sealed(std::nullopt);
  for (const WorkerId id : {kA, kB, WorkerId{3}}) round.ready(id);
  EXPECT_EQ(next(round), Action::kAnnounce);
  round.prepared(kA), round.prepared(3);
  decide(round);
  EXPECT_EQ(next(round), Action::kDecided);
  EXPECT_THAT(round.to_tell(), ElementsAre(3));
  EXPECT_EQ(next(round), Action::kNone);
  round.prepared(kB);
  EXPECT_EQ(next(round), Action::kDecided);
  EXPECT_THAT(round.to_tell(), ElementsAre(kA, kB));
}

TEST(Round, EachGoesOnWithoutAWorkerThatFailed) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before ? "before the decision" : "after it");
    Round round = each_in_preparing();
    if (before) round.failed(kA, "the digest differs");
    round.prepared(kB);
    decide(round);
    EXPECT_EQ(next(round), Action::kDecided);
    if (!before) round.failed(kA, "the digest differs");
    round.prepared(kA);
    EXPECT_EQ(next(round), Action::kNone) << "the failed one is not told to flip";
    round.acked(kB, 1, 0);
    EXPECT_EQ(next(round), Action::kSettle);
    EXPECT_EQ(round.reports()[0].state, WorkerState::kFailed);
    EXPECT_THAT(text(round.reports()[0].error), HasSubstr("the digest differs"));
    EXPECT_EQ(round.reports()[1].state, WorkerState::kServing);
  }
}

TEST(Round, EachAbortsWhereNobodyIsLeftToPrepareIt) {
  for (const bool lost : {false, true}) {
    Round round = each_in_preparing();
    round.failed(kA, "the digest differs");
    EXPECT_EQ(next(round), Action::kNone);
    if (lost) round.lost(kB, unavailable("hung up"));
    if (!lost) round.failed(kB, "too");
    EXPECT_EQ(next(round), Action::kAbort);
    EXPECT_THAT(text(round.why_aborted()), HasSubstr("worker a could not prepare"));
  }
}

// ---- durable ----

TEST(Round, SettlesOnceTheDiskHasItToo) {
  for (const bool disk_first : {false, true}) {
    Round round = round_of({{kA, "a"}}, {.persists = true});
    round.sealed(std::nullopt), round.ready(kA);
    EXPECT_EQ(next(round), Action::kAnnounce);
    round.prepared(kA);
    decide(round);
    EXPECT_EQ(next(round), Action::kDecided) << "it is readable before it is on the disk";
    EXPECT_EQ(next(round), Action::kPersist);
    EXPECT_EQ(next(round), Action::kNone);
    if (disk_first) round.persisted(absl::DataLossError("the disk said no"));
    if (!disk_first) round.acked(kA, 1, 0);
    EXPECT_EQ(next(round), Action::kNone);
    if (disk_first) round.acked(kA, 1, 0);
    if (!disk_first) round.persisted(absl::OkStatus());
    EXPECT_EQ(next(round), Action::kSettle);
    EXPECT_EQ(round.persist_status().ok(), !disk_first) << "an error is for the report: the version is served";
    EXPECT_GT(round.persist_seconds(), 0);
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

}  // namespace
}  // namespace bascule::test
