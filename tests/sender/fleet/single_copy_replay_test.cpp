// Past bugs with single copies and their loans, as replays of events.
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SingleCopyReplay : public Replay {
 protected:
  explicit SingleCopyReplay(std::string_view options = "slots=1") : Replay(options) {
    open();
    seal_written(begin());
  }
  void seal_written(Version version) {
    ASSERT_EQ(may_write, version);
    end_loan(version);
    seal(version);
  }
};

TEST_F(SingleCopyReplay, IsWrittenOnceEveryReaderHasSteppedAside) {
  const WorkerId a = serve(hello("a", 1)), b = serve(hello("b", 2));
  const Version version = begin();
  say(a, Ready{.version = version});
  EXPECT_NE(may_write, version);
  say(b, Ready{.version = version});
  EXPECT_EQ(may_write, version);
}

// It was evicted between the grant and the announcement, and still reads: the loan failed at once.
TEST_F(SingleCopyReplay, WaitsForAReaderThatLeftWithIt) {
  const WorkerId id = serve(hello("a", 1));
  const std::optional<Grant> grant = ask();
  ASSERT_TRUE(grant);
  hang_up(id);
  const Version version = announce(*grant);
  EXPECT_NE(may_write, version);
  tell(event::HolderGone{1});
  EXPECT_EQ(may_write, version);
}

TEST_F(SingleCopyReplay, IsAskedOfAReaderThatCameBack) {
  const WorkerId id = serve(hello("a", 1));
  const Version version = begin();
  say(id, Poisoned{.why = "its engine says so"});
  Hello back = hello("a", 1);
  back.held = {{.slot = {kEpoch, 0}, .version = 1}};
  const WorkerId again = join(back);
  EXPECT_EQ(told<Prepare>(again).version, version);
  say(again, Ready{.version = version});
  EXPECT_EQ(may_write, version);
}

// It was sent the next version of a single copy before it released the aborted one; when it left, the version that it
// then served was still taken for the aborted one.
TEST_F(SingleCopyReplay, AnAbortThatANewPrepareOvertakesLeavesNothingToRelease) {
  const WorkerId id = join(hello("w", 1));
  const Prepare aborted = told<Prepare>(id);
  say(id, Ready{.version = 1});
  told<Sealed>(id);
  say(id, Failed{.version = 1, .why = "this once"});
  told<Abort>(id);
  const Version version = begin();
  const Prepare next = told<Prepare>(id);
  release(id, aborted);
  EXPECT_TRUE(holds(1, next.slot));
  say(id, Ready{.version = version});
  seal_written(version);
  told<Sealed>(id);
  say(id, Prepared{.version = version});
  told<Decided>(id);
  say(id, Ack{.version = version});
  hang_up(id);
  EXPECT_TRUE(holds(1, next.slot)) << "it reads on";
}

// The others were late, and it was asked only after their deadline: no timer ran any longer, and the loan hung.
TEST_F(SingleCopyReplay, AReaderThatIsAskedBehindTheDeadlineIsNotWaitedForForEver) {
  const WorkerId slow = serve(hello("slow", 1)), back_soon = serve(hello("back", 2));
  const Version version = begin();
  say(back_soon, Poisoned{.why = "its engine says so"});
  Hello back = hello("back", 2);
  back.held = {{.slot = {kEpoch, 0}, .version = 1}};
  const WorkerId again = join(back);
  EXPECT_TRUE(told_nothing(again)) << "the other one has not yielded";
  pass(absl::Seconds(31));
  EXPECT_TRUE(peers.at(slow).closed);
  EXPECT_EQ(told<Prepare>(again).version, version);
  pass(absl::Minutes(1));
  EXPECT_THAT(message_of(status_of(version)), HasSubstr("the single copy is still read by"));
}

// Its group was departing with it, and was still asked: the trainer crashed.
TEST_F(SingleCopyReplay, IsLentThoughARankThatSteppedAsideDies) {
  Hello first = rank(0), second = rank(1);
  first.casts = second.casts = true;
  const WorkerId reader = serve(hello("reader", 3));
  const std::vector<WorkerId> ids = {greet(first), greet(second)};
  for (const WorkerId id : ids) told<Welcome>(id);
  const Prepare served = take_all(ids);
  for (const WorkerId id : ids) release(id, served);
  const Version version = begin();
  say(reader, Ready{.version = version});
  say(ids[0], Ready{.version = version});
  hang_up(ids[0]);
  EXPECT_NE(may_write, version) << "their process may still read";
  for (const Holder instance : {10, 11}) tell(event::HolderGone{instance});
  EXPECT_EQ(may_write, version);
}

TEST_F(SingleCopyReplay, ThatFailsOnceItIsWrittenIsTorn) {
  const WorkerId id = serve(hello("a", 1));
  const Version version = begin();
  told<Prepare>(id);
  say(id, Ready{.version = version});
  seal_written(version);
  told<Sealed>(id);
  say(id, Failed{.version = version, .why = "its bytes are wrong"});
  EXPECT_TRUE(told<Abort>(id).torn) << "what was served before is gone";
  EXPECT_FALSE(fleet.slot_allocator().newest());
}

TEST_F(SingleCopyReplay, ALoanThatIsKeptTooLongLapsesAndComesBackUnwritten) {
  const WorkerId id = serve(hello("a", 1));
  const Version version = begin();
  told<Prepare>(id);
  say(id, Ready{.version = version});
  ASSERT_EQ(may_write, version);
  pass(absl::Seconds(31));
  EXPECT_TRUE(told<Abort>(id).torn) << "the trainer may still write";
  EXPECT_FALSE(end_loan(version));
  say(id, Poisoned{.why = "it may be half written"});
  Hello back = hello("a", 1);
  back.held = {{.slot = {kEpoch, 0}, .version = 1}};
  const WorkerId again = join(back);
  EXPECT_TRUE(told_nothing(again)) << "the slot is the trainer's until the loan comes back";
  abandon(version, /*torn=*/false);
  EXPECT_THAT(message_of(status_of(version)), HasSubstr("longer than loan_timeout"));
  EXPECT_EQ(take(again).version, 1u);
}

// The loan came back as its deadline passed: it is sealed, and nothing lapses.
TEST_F(SingleCopyReplay, ALoanThatComesBackAtItsDeadlineIsPublished) {
  const Version version = begin();
  ASSERT_EQ(may_write, version);
  end_loan(version);
  pass(absl::Minutes(2));
  seal(version);
  EXPECT_THAT(status_of(version), IsOk());
}

// It has copied its version and released the slot, and its engine still loads it.
TEST_F(SingleCopyReplay, IsNotKeptFromTheTrainerByAWorkerThatReadsNothing) {
  Hello copying = hello("copying", 1);
  copying.casts = true;
  const WorkerId id = join(copying);
  const Prepare prepare = told<Prepare>(id);
  say(id, Ready{.version = 1});
  told<Sealed>(id);
  say(id, Prepared{.version = 1});
  told<Decided>(id);
  say(id, Loading{.version = 1});
  EXPECT_FALSE(ask()) << "it reads";
  release(id, prepare);
  const std::optional<Grant> grant = take_granted();
  ASSERT_TRUE(grant);
  const Version version = announce(*grant);
  seal_written(version);
  EXPECT_THAT(status_of(version), IsOk());
  say(id, Ack{.version = 1});
  EXPECT_EQ(told<Prepare>(id).version, version) << "it catches up";
}

TEST_F(SingleCopyReplay, CannotLeaveOutAWorkerThatReadsInPlace) {
  const WorkerId a = serve(hello("a", 1)), b = serve(hello("b", 2));
  EXPECT_FALSE(ask({"a"}));
  ASSERT_TRUE(granted);
  EXPECT_THAT(granted->status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("that b also reads in place")));
  granted.reset();
  const Version version = begin({"a", "b"});
  for (const WorkerId id : {a, b}) say(id, Ready{.version = version});
  EXPECT_EQ(may_write, version);
}

class EachOfASingleCopy : public SingleCopyReplay {
 protected:
  EachOfASingleCopy() : SingleCopyReplay("slots=1&commit=each") {}
};

// It already read the slot, failed in its catch-up there, and was evicted: its lease ended, and the slot was written
// while it read.
TEST_F(EachOfASingleCopy, AReaderThatIsEvictedInItsCatchUpReadsOn) {
  const WorkerId a = serve(hello("a", 1)), b = serve(hello("b", 2));
  const Version version = begin();
  for (const WorkerId id : {a, b}) told<Prepare>(id);
  for (const WorkerId id : {a, b}) say(id, Ready{.version = version, .copies_behind = false});
  seal_written(version);
  say(b, Failed{.version = version, .why = "this once"});
  say(a, Prepared{.version = version});
  say(a, Ack{.version = version, .stall_seconds = 0, .seconds = 0});
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kServing, WorkerState::kFailed));
  told<Sealed>(b);
  told<Prepare>(b);
  say(b, Ready{.version = version, .copies_behind = false});
  say(b, Failed{.version = version, .why = "again"});
  EXPECT_THAT(why_closed(b), HasSubstr("failed two versions in a row"));
  EXPECT_TRUE(holds(2, {kEpoch, 0}));
}

}  // namespace
}  // namespace bascule::test
