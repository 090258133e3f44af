// Past bugs with leases, as replays of events.
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class LeaseReplay : public Replay {
 protected:
  LeaseReplay() {
    open();
    send();
  }
};

// The lease pipe hung up before the connection did: a version that began in between leased a slot to a dead reader.
TEST_F(LeaseReplay, APipeThatHangsUpBeforeItsConnectionEndsTheMembershipFirst) {
  const WorkerId id = serve(hello("w", 1));
  tell(event::HolderGone{1});
  EXPECT_THAT(why_closed(id), HasSubstr("its process is gone"));
  const WorkerId lives = serve(hello("x", 2));
  tell(event::HolderGone{.holder = 2, .ended = false});
  EXPECT_THAT(why_closed(lives), testing::AllOf(HasSubstr("its lease pipe was closed"), Not(HasSubstr("is gone"))));
  const Version version = begin();
  EXPECT_TRUE(told_nothing(id));
  seal(version);
  hang_up(id);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(status_of(send()), IsOk()) << i;
}

// A lease outlives the connection: the reader may have been stopped.
TEST_F(LeaseReplay, AWorkerThatWasEvictedKeepsItsSlotFromBeingWritten) {
  const WorkerId id = join(hello("w", 1));
  const Prepare served = take(id);
  hang_up(id);
  for (int i = 0; i < 4; ++i) {
    const std::optional<Grant> grant = ask();
    ASSERT_TRUE(grant);
    EXPECT_NE(grant->slot, served.slot);
    seal(announce(*grant));
  }
  tell(event::HolderGone{1});
  EXPECT_FALSE(holds(1, served.slot));
}

TEST_F(LeaseReplay, AVersionThatItNeverTookLeavesNoLeaseBehind) {
  const WorkerId id = join(hello("w", 1));
  const Prepare first = take(id);
  const Version second = begin();
  const Prepare told_of = told<Prepare>(id);
  EXPECT_TRUE(holds(1, told_of.slot));
  hang_up(id);  // before it was told to flip
  EXPECT_FALSE(holds(1, told_of.slot));
  EXPECT_TRUE(holds(1, first.slot)) << "it may still read it";
  seal(second);
  EXPECT_THAT(status_of(second), IsOk());
}

TEST_F(LeaseReplay, AVersionThatItWasToldToFlipToKeepsItsLease) {
  const WorkerId id = serve(hello("w", 1));
  const Version second = begin();
  const Prepare prepare = told<Prepare>(id);
  say(id, Ready{.version = second});
  seal(second);
  say(id, Prepared{.version = second});
  told<Sealed>(id);
  told<Decided>(id);
  hang_up(id);
  EXPECT_TRUE(holds(1, prepare.slot));
}

// A lease pipe costs a descriptor: of a worker that left without a lease it is closed, though a process keeps its end.
TEST_F(LeaseReplay, APipeIsWatchedOnlyWhileItsHolderMayRead) {
  const WorkerId idle = join(hello("idle", 1));
  hang_up(idle);
  EXPECT_THAT(closed_leases, testing::ElementsAre(1)) << "its lease ended with its membership";
  const WorkerId reads = serve(hello("reads", 2));
  hang_up(reads);
  EXPECT_THAT(closed_leases, testing::ElementsAre(1)) << "it may still read";
  tell(event::HolderGone{2});
  EXPECT_TRUE(fleet.roster().known_holders().empty());
}

TEST_F(LeaseReplay, OneProcessUnderTwoNamesKeepsItsPipeWhileOneOfThemIsConnected) {
  const WorkerId a = join(hello("a", 1)), b = join(hello("b", 1));
  hang_up(a);
  EXPECT_THAT(closed_leases, testing::IsEmpty());
  hang_up(b);
  EXPECT_THAT(closed_leases, testing::ElementsAre(1));
}

class FewDescriptors : public Replay {
 protected:
  FewDescriptors() : Replay("", {.delivers = true, .most_left_behind = 3}) {
    open();
    send();
  }
};

TEST_F(FewDescriptors, OfManyWorkersThatLeftWithALeaseTheFirstAreWatched) {
  for (Holder i = 1; i <= 5; ++i) hang_up(serve(hello(cat("w-", i), i)));
  EXPECT_THAT(closed_leases, testing::ElementsAre(4, 5));
  EXPECT_THAT(log, Contains(HasSubstr("the leases of w-4 last as long as this sender: 3 workers have already left")));
  EXPECT_TRUE(holds(5, fleet.slot_allocator().newest()->slot)) << "it may read as long as it likes";
  Hello again = hello("w-5", 5);
  again.epoch = kEpoch;
  again.serving = 1;
  EXPECT_TRUE(is_member(join(std::move(again))));
  EXPECT_FALSE(holds(5, fleet.slot_allocator().newest()->slot)) << "it came back and claims none";
}

// A table of everyone who was ever poisoned grew without end.
TEST_F(LeaseReplay, OfWorkersThatWerePoisonedTheNewestAreRemembered) {
  for (int i = 0; i < 3000; ++i) {
    const WorkerId id = join(hello(cat("w-", i), 10 + static_cast<Holder>(i)));
    say(id, Poisoned{.why = cat("why ", i)});
    EXPECT_FALSE(is_member(id));
  }
  const std::vector<WorkerStatus> workers = fleet.status(std::nullopt).workers;
  EXPECT_EQ(std::ranges::count(workers, "poisoned", &WorkerStatus::state), 1024);
  const auto newest = std::ranges::find(workers, "w-2999", &WorkerStatus::worker);
  ASSERT_NE(newest, workers.end());
  EXPECT_EQ(newest->why, "why 2999");
  EXPECT_EQ(std::ranges::find(workers, "w-0", &WorkerStatus::worker), workers.end());
}

// A release that crossed the prepare ended the lease of the newer version.
TEST_F(LeaseReplay, AReleaseOfAnOlderVersionEndsNoNewerLease) {
  const WorkerId id = join(hello("w", 1));
  Prepare served = take(id);
  const Prepare first = served;
  for (int i = 0; i < 2; ++i) served = send_to({id}, served);
  EXPECT_EQ(served.slot, first.slot);
  release(id, first);
  EXPECT_TRUE(holds(1, served.slot));
}

// It came back reading a slot whose version it no longer served: its copy was late. It was sent the version there
// again, and its release crossed that message: the sender ended the lease of the version that it was preparing.
class CrossedReplay : public LeaseReplay {
 protected:
  WorkerId come_back() {
    Hello again = hello("w", 1);
    again.epoch = kEpoch;
    again.held = {{.slot = slot_, .version = 1}};
    return join(again);
  }
  void SetUp() override {
    const WorkerId id = join(hello("w", 1));
    take(id);
    hang_up(id);
    ASSERT_TRUE(holds(1, slot_));
  }
  const SlotId slot_{kEpoch, 0};
  const Released of_before_{.slot = slot_, .lease = 0};
};

TEST_F(CrossedReplay, ByAPrepareOfTheSameVersionTheReleaseEndsTheEarlierLeaseOnly) {
  const WorkerId id = come_back();
  say(id, of_before_);  // before it knows of the version
  EXPECT_TRUE(holds(1, slot_));
  const Prepare again = take(id);
  EXPECT_EQ(again.slot, slot_);
  for (int i = 0; i < 3; ++i) {
    const std::optional<Grant> grant = ask();
    ASSERT_TRUE(grant);
    EXPECT_NE(grant->slot, slot_) << "it reads that one";
    const Version version = announce(*grant);
    abandon(version);
    const Prepare aborted = told<Prepare>(id);
    told<Abort>(id);
    release(id, aborted);
  }
  release(id, again);
  EXPECT_FALSE(holds(1, slot_));
}

TEST_F(CrossedReplay, ByAPrepareThatIsAbortedItIsToldAgainOnceThatWasReleased) {
  const WorkerId id = come_back();
  say(id, of_before_);
  const Prepare first = told<Prepare>(id);
  say(id, Ready{.version = first.version});
  told<Sealed>(id);
  say(id, Failed{.version = first.version, .why = "this once"});
  told<Abort>(id);
  EXPECT_TRUE(told_nothing(id)) << "it has not answered the abort";
  release(id, first);
  EXPECT_EQ(take(id).slot, slot_);
  EXPECT_TRUE(holds(1, slot_));
}

TEST_F(CrossedReplay, ByAPrepareOfAWorkerThatGoesNoLeaseIsLeft) {
  const WorkerId id = come_back();
  say(id, of_before_);
  hang_up(id);  // before it was told to flip
  EXPECT_FALSE(holds(1, slot_));
}

// A version was aborted, and the worker left without releasing it: the slot was never freed.
TEST_F(LeaseReplay, AnAbortedVersionLeavesNoLeaseBehindWhereItsWorkerGoes) {
  const WorkerId a = serve(hello("a", 1)), b = serve(hello("b", 2));
  const Version version = begin();
  const Prepare prepare = told<Prepare>(a);
  say(a, Failed{.version = version, .why = "this once"});
  abandon(version);
  EXPECT_FALSE(status_of(version).ok());
  EXPECT_TRUE(holds(2, prepare.slot)) << "it has not answered the abort";
  hang_up(b);
  EXPECT_FALSE(holds(2, prepare.slot));
}

// It answered the abort while the trainer was still writing; it then lost the lease of a later version in that slot.
TEST_F(LeaseReplay, AnAbortAnsweredEarlyDoesNotEndALaterLease) {
  const WorkerId reader = join(hello("reader", 1)), other = join(hello("other", 2));
  const Prepare first = take(reader);
  take(other);
  const Version aborted = begin();
  const Prepare prepare = told<Prepare>(reader);
  told<Prepare>(other);
  say(other, Failed{.version = aborted, .why = "before it was asked"});
  for (const WorkerId id : {reader, other}) told<Abort>(id);
  for (const WorkerId id : {reader, other}) release(id, prepare);
  seal(aborted);
  const Version version = begin();
  const Prepare served = told<Prepare>(reader);
  told<Prepare>(other);
  for (const WorkerId id : {reader, other}) say(id, Ready{.version = version});
  seal(version);
  for (const WorkerId id : {reader, other}) say(id, Prepared{.version = version});
  for (const WorkerId id : {reader, other}) say(id, Ack{.version = version});
  for (const WorkerId id : {reader, other}) release(id, first);
  hang_up(reader);
  EXPECT_TRUE(holds(1, served.slot));
}

// It claims a slot in its greeting, releases it, and is evicted in the version that is written there: the old claim
// kept the slot.
TEST_F(LeaseReplay, AClaimThatWasLetGoOfIsNoClaimAnyMore) {
  Hello again = hello("w", 1);
  again.epoch = kEpoch;
  again.serving = 1;
  again.held = {{.slot = {kEpoch, 0}, .version = 1}};
  const WorkerId id = join(again);
  Prepare before;
  before.version = 1;
  before.slot = {kEpoch, 0};
  const Prepare second = send_to({id}, before);
  EXPECT_EQ(second.version, 2u);
  begin();
  const Prepare third = told<Prepare>(id);
  EXPECT_EQ(third.slot, (SlotId{kEpoch, 0}));
  hang_up(id);
  EXPECT_FALSE(holds(1, third.slot));
}

TEST_F(LeaseReplay, OfALostDeviceEndThoughItsProcessLives) {
  const WorkerId id = join(hello("w", 1));
  const Prepare served = take(id);
  say(id, Poisoned{.why = "its device is lost", .final = true});
  EXPECT_FALSE(holds(1, served.slot));
  const WorkerId again = greet(hello("w", 1)), anew = greet(hello("w", 2));
  EXPECT_TRUE(peers.at(again).closed->final);
  EXPECT_FALSE(peers.at(anew).closed);
}

// A sender with workers on its host and on others, which has published a version in slot 0.
class LeasesOverTcp : public testing::Test {
 protected:
  LeasesOverTcp() {
    const auto layout = std::make_shared<const Layout>();
    tell(event::LayoutRegistered{layout});
    tell(event::SlotsOpened{{{{7, 0}, &memory_}, {{7, 1}, &memory_}}, layout, {}});
    tell(event::TakeWanted{});
    tell(event::Announced{Grant{.version = 1, .slot = {7, 0}}, {}, Limit::timeout({}, now_)});
    tell(event::SlotSealed{1, {}, Limit::timeout({}, now_)});
    tell(event::Delivered{1, absl::OkStatus()});
  }
  template <typename Event>
  void tell(Event event) {
    fleet_.on(std::move(event), now_);
  }
  void join(WorkerId id, std::string name, std::uint64_t instance, ConnectionKind kind) {
    Hello hello;
    hello.worker = std::move(name);
    hello.instance = instance;
    tell(event::Greeted{id, hello, kind});
    tell(event::Admitted{id, absl::OkStatus()});
  }
  bool is_read() const { return !fleet_.slot_allocator().holders_of({7, 0}).empty(); }
  bool is_read_by(Holder holder) const { return fleet_.slot_allocator().holds({7, 0}, holder); }

 private:
  const Clock::time_point now_{};
  SlotMemory memory_;
  Fleet fleet_{{.endpoint = *Endpoint::parse("auto:///run/x?listen=node1:29500"), .epoch = 7, .delivers = true}};
};

TEST_F(LeasesOverTcp, EndWithTheConnection) {
  join(1, "w", 3, ConnectionKind::kTcp);
  EXPECT_TRUE(is_read()) << "it catches up";
  tell(event::HungUp{1, absl::UnavailableError("gone")});
  EXPECT_FALSE(is_read());
}

TEST_F(LeasesOverTcp, APeerThatNamesTheInstanceOfAWorkerOfThisHostEndsNoLeaseOfIt) {
  constexpr std::uint64_t kInstance = 3'000'000;
  join(1, "here", kInstance, ConnectionKind::kUnixSocket);
  ASSERT_TRUE(is_read_by(kInstance));
  join(2, "elsewhere", kInstance, ConnectionKind::kTcp);
  tell(event::HungUp{2, absl::UnavailableError("gone")});
  join(3, "here", kInstance, ConnectionKind::kTcp);  // its name is taken
  tell(event::HungUp{3, absl::UnavailableError("gone")});
  EXPECT_TRUE(is_read_by(kInstance));
}

TEST_F(LeasesOverTcp, APeerThatNamesAWorkerOfThisHostDoesNotKeepItOut) {
  constexpr std::uint64_t kInstance = 3'000'000;
  join(1, "here", kInstance, ConnectionKind::kUnixSocket);
  tell(event::HungUp{1, absl::UnavailableError("gone for a moment")});
  join(2, "here", kInstance, ConnectionKind::kTcp);
  tell(event::Heard{2, Message(Poisoned{.why = "lost", .final = true})});
  join(3, "here", kInstance, ConnectionKind::kUnixSocket);
  EXPECT_TRUE(is_read_by(kInstance)) << "it is refused";
}

// Workers left out of sends keep reading as long as they are left out.
TEST_F(LeaseReplay, AWorkerThatIsLeftOutIsNotWaitedFor) {
  const WorkerId out = join(hello("out", 1)), in = join(hello("in", 2));
  const Prepare first = take(out);
  Prepare served = take(in);
  for (int i = 0; i < 3; ++i) {
    const Version version = send({"in"});
    const Prepare now_served = take(in);
    release(in, served);
    served = now_served;
    ASSERT_THAT(status_of(version), IsOk());
  }
  EXPECT_TRUE(holds(1, first.slot));
  EXPECT_TRUE(told_nothing(out));
}

}  // namespace
}  // namespace bascule::test
