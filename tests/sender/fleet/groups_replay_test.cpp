// Past bugs with groups, joins and departures, as replays of events.
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GroupReplay : public Replay {
 protected:
  explicit GroupReplay(std::string_view options = "") : Replay(options) {
    open();
    send();
  }
  std::vector<WorkerId> join_group() {
    std::vector<WorkerId> ids = {greet(rank(0)), greet(rank(1))};
    for (const WorkerId id : ids) told<Welcome>(id);
    return ids;
  }
};

TEST_F(GroupReplay, OneRankAloneIsNotWelcomed) {
  const WorkerId first = greet(rank(0));
  EXPECT_TRUE(told_nothing(first));
  greet(rank(1));
  told<Welcome>(first);
}

// The remaining rank was told to flip, and served a version that the lost one did not.
TEST_F(GroupReplay, TheRestOfAGroupIsNotToldToFlipWhenOneRankIsLost) {
  const std::vector<WorkerId> ids = join_group();
  take_all(ids);
  const Version version = send();
  for (const WorkerId id : ids) told<Prepare>(id);
  for (const WorkerId id : ids) say(id, Ready{.version = version});
  told<Sealed>(ids[0]);
  say(ids[0], Prepared{.version = version});
  hang_up(ids[1]);  // the decision waited only for it
  EXPECT_TRUE(told_nothing(ids[0]));
  EXPECT_THAT(why_closed(ids[0]), HasSubstr("its group lost rank 1"));
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kEvicted, WorkerState::kEvicted));
}

TEST_F(GroupReplay, ARankThatCatchesUpKeepsItsGroupOutOfASend) {
  Hello serving = rank(0);
  serving.epoch = kEpoch;
  serving.serving = 1;
  const WorkerId first = greet(serving), second = greet(rank(1));
  told<Welcome>(first);
  told<Welcome>(second);
  told<Prepare>(second);
  const Version version = send();
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kCatchingUp, WorkerState::kCatchingUp));
  EXPECT_TRUE(told_nothing(first));
}

// One rank took the previous version before a send to others was decided, and one after: the later one flipped alone.
TEST_F(GroupReplay, RanksThatFlipBeforeAndAfterASendToOthersStayTogether) {
  const WorkerId other = serve(hello("a", 1));
  const std::vector<WorkerId> ids = join_group();
  for (const WorkerId id : ids) say(id, Ready{.version = told<Prepare>(id).version});
  for (const WorkerId id : ids) told<Sealed>(id);
  for (const WorkerId id : ids) say(id, Prepared{.version = 1});
  for (const WorkerId id : ids) told<Decided>(id);
  say(ids[0], Ack{.version = 1, .stall_seconds = 0, .seconds = 0});
  const Version second = send({"a"});
  take(other);
  ASSERT_THAT(status_of(second), IsOk());
  say(ids[1], Ack{.version = 1, .stall_seconds = 0, .seconds = 0});
  EXPECT_EQ(told_nothing(ids[0]), told_nothing(ids[1]));
}

// One rank could not be admitted after the other had been welcomed: that one waited forever, and was welcomed twice.
TEST_F(GroupReplay, ARankThatCannotBeAdmittedTakesItsGroupWithIt) {
  const WorkerId first = greet(rank(0));
  failing_admissions = 1;
  const WorkerId second = greet(rank(1));
  EXPECT_THAT(why_closed(first), HasSubstr("no room"));
  EXPECT_THAT(why_closed(second), HasSubstr("its group lost rank 0"));
  EXPECT_TRUE(fleet.roster().members().empty());
}

class EachReplay : public GroupReplay {
 protected:
  EachReplay() : GroupReplay("commit=each") {}
};

// With commit=each the others of a group flipped without the rank that failed.
TEST_F(EachReplay, AFailedRankKeepsItsGroupFromFlippingAndTheyCatchUpTogether) {
  const std::vector<WorkerId> ids = join_group();
  take_all(ids);
  const WorkerId other = serve(hello("other", 3));
  const Version version = send();
  std::vector<WorkerId> all = ids;
  all.push_back(other);
  Prepare prepare;
  for (const WorkerId id : all) prepare = told<Prepare>(id);
  for (const WorkerId id : all) say(id, Ready{.version = version});
  for (const WorkerId id : all) told<Sealed>(id);
  say(ids[0], Prepared{.version = version});
  say(ids[1], Failed{.version = version, .why = "this once"});
  say(other, Prepared{.version = version});
  told<Decided>(other);
  say(other, Ack{.version = version, .stall_seconds = 0, .seconds = 0});
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kFailed, WorkerState::kFailed, WorkerState::kServing));
  for (const WorkerId id : ids) {
    told<Abort>(id);
    EXPECT_TRUE(told_nothing(id)) << "it has not released it";
  }
  for (const WorkerId id : ids) release(id, prepare);
  EXPECT_EQ(take_all(ids).version, version);
}

// ---- joins and departures ----

class MemberReplay : public Replay {};

TEST_F(MemberReplay, TheFirstVersionIsForAllThatHadGreeted) {
  register_layout();
  const WorkerId id = greet(hello("w", 1));
  EXPECT_TRUE(told_nothing(id));
  tell(event::TakeWanted{});
  open_slots();
  told<Welcome>(id);
  announce(*take_granted());
  told<Prepare>(id);
}

TEST_F(MemberReplay, TheSameProcessThatComesBackTakesItsOwnPlace) {
  open();
  send();
  const WorkerId before = serve(hello("w", 1)), after = greet(hello("w", 1)), other = greet(hello("w", 2));
  EXPECT_THAT(why_closed(before), HasSubstr("came back on a new connection"));
  told<Welcome>(after);
  EXPECT_THAT(why_closed(other), HasSubstr("another worker named w"));
  EXPECT_FALSE(peers.at(other).closed->final) << "the first one may leave";
}

TEST_F(MemberReplay, AWorkerThatIsRefusedCountsNoMoreWhenItHearsSo) {
  open();
  join(hello("a", 1));
  const WorkerId b = join(hello("b", 2));
  EXPECT_EQ(fleet.roster().addressable(), 2u);
  const std::vector<Action> actions = fleet.on(event::HungUp{b, absl::UnavailableError("gone")}, now);
  EXPECT_TRUE(std::holds_alternative<action::Close>(actions.at(0)));
  EXPECT_EQ(fleet.roster().addressable(), 1u) << "before it is told";
}

TEST_F(MemberReplay, AWorkerThatFailsTwoVersionsRunningIsPoisonedAndMayComeBack) {
  open();
  const Version first = send();
  const WorkerId id = join(hello("w", 1));
  const Prepare prepare = told<Prepare>(id);
  say(id, Ready{.version = first});
  told<Sealed>(id);
  say(id, Failed{.version = first, .why = "its bytes are wrong"});
  told<Abort>(id);
  release(id, prepare);
  say(id, Ready{.version = told<Prepare>(id).version});
  say(id, Failed{.version = first, .why = "again"});
  EXPECT_THAT(why_closed(id), HasSubstr("poisoned: failed two versions in a row, the last because: again"));
  EXPECT_EQ(fleet.status({}).workers.at(0).state, "poisoned");
  const WorkerId back = serve(hello("w", 1));
  EXPECT_EQ(fleet.status({}).workers.at(0).state, "serving") << back;
}

TEST_F(MemberReplay, AWordBeforeTheWelcomeEndsTheMembershipButNotAFlip) {
  const WorkerId flips = greet(hello("flips", 1)), talks = greet(hello("talks", 2));
  say(flips, Ack{.version = 3, .stall_seconds = 0, .seconds = 0});
  say(talks, Prepared{.version = 3});
  EXPECT_TRUE(is_member(flips));
  EXPECT_THAT(why_closed(talks), HasSubstr("prepared came before the welcome"));
  EXPECT_EQ(fleet.versions().used(), 3u) << "the next version is above what it serves";
}

// A slot made later could not be offered to a worker, and the send hung.
TEST_F(MemberReplay, AWorkerThatCannotBeOfferedANewSlotIsEvictedAndReported) {
  open();
  send();
  hang_up(serve(hello("gone", 2)));
  const WorkerId id = join(hello("w", 1));
  const Prepare first = take(id);
  send_to({id}, first);
  failing_offers = 1;
  const Version version = send();
  EXPECT_THAT(states_of(version), ElementsAre(WorkerState::kEvicted));
  EXPECT_THAT(why_closed(id), HasSubstr("its slot could not be offered"));
}

TEST_F(MemberReplay, NumbersDoNotRunOutBecauseSomebodyClaimsTheLastOne) {
  open();
  send();
  Hello claims = hello("stranger", 6);
  claims.serving = ~Version{0};
  const WorkerId id = greet(claims);
  EXPECT_THAT(why_closed(id), testing::AllOf(HasSubstr("worker stranger"), HasSubstr("above the last one, 1;")));
  EXPECT_EQ(fleet.versions().used(), 1u);
}

// It serves a higher number from a run whose sender.lock was lost: the newest version here is not newer for it.
TEST_F(MemberReplay, AWorkerThatHasAHigherVersionOfAnotherEpochIsSentTheNext) {
  open();
  send();
  Hello before = hello("w", 1);
  before.epoch = 5;
  before.serving = 9;
  const WorkerId id = join(before);
  EXPECT_TRUE(told_nothing(id));
  EXPECT_EQ(send(), 10u);
  EXPECT_EQ(take(id).version, 10u);
}

}  // namespace
}  // namespace bascule::test
