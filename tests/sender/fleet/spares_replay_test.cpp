// Spare slots, made for what stopped workers and helpers of dead workers still read, as replays of events.
#include "sender/fleet/replay.h"  // first: see there

namespace bascule::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class SpareReplay : public Replay {
 protected:
  explicit SpareReplay(std::string_view options = "") : Replay(options) {
    open();
    send();
    for (Holder instance : {1, 2}) {  // each stops in another slot
      hang_up(serve(hello(cat("stopped-", instance), instance)));
      if (instance == 1) send();
    }
  }
};

TEST_F(SpareReplay, TwoReadersThatStoppedOnTwoSlotsDoNotEndAllSends) {
  std::string warnings;
  for (int i = 0; i < 6; ++i) {
    const Version version = send();
    ASSERT_THAT(status_of(version), IsOk());
    for (const std::string& warning : settled.at(version)->warnings) warnings += warning + "\n";
  }
  EXPECT_THAT(warnings, HasSubstr("spare slot 1 of 2: stopped-1 (slot 0) still read"));
  EXPECT_THAT(warnings, HasSubstr("spare slot 2 of 2: stopped-1 (slot 0), stopped-2 (slot 1) still read"));
}

// A slot was given back without having been written: the report of a later version mentioned it.
TEST_F(SpareReplay, ASpareSlotThatWasGivenBackIsNotReported) {
  send();  // to the second slot
  const std::optional<Grant> grant = ask();
  ASSERT_TRUE(grant && grant->is_new);
  tell(event::GivenBack{*grant});
  tell(event::HolderGone{1});
  tell(event::HolderGone{2});
  const Version version = send();
  ASSERT_THAT(status_of(version), IsOk());
  EXPECT_THAT(settled.at(version)->warnings, Not(Contains(HasSubstr("spare slot"))));
}

class OneSpare : public SpareReplay {
 protected:
  OneSpare() : SpareReplay("spares=1") {}
};

TEST_F(OneSpare, IsTheLastAndItsHoldersAreNamed) {
  send();
  EXPECT_FALSE(ask());
  EXPECT_THAT(fleet.slot_allocator().readers(),
              testing::AllOf(HasSubstr("stopped-1 (slot 0)"), HasSubstr("stopped-2 (slot 1)")));
  EXPECT_EQ(fleet.slot_allocator().spares_used(), 1);
  tell(event::HolderGone{1});
  EXPECT_TRUE(take_granted()) << "the waiting writer gets it at once";
}

class OrphanedLeases : public Replay {
 protected:
  OrphanedLeases() {
    open();
    send();
  }
};

// Engines are killed and started again; a helper that each had forked lives on with its lease.
TEST_F(OrphanedLeases, HelpersOfDeadWorkersFailNoSendWhileASlotCanBeMade) {
  for (Holder i = 1; i <= 8; ++i) {
    hang_up(serve(hello("engine", i)));
    tell(event::LeftRunning{.holder = i, .who = cat("pid ", 70 + i, " (helper)")});
    for (int sends = 0; sends < 2; ++sends) ASSERT_THAT(status_of(send()), IsOk()) << "restart " << i;
  }
  const SenderStatus status = fleet.status(std::nullopt);
  EXPECT_EQ(std::ranges::count(status.workers, "gone", &WorkerStatus::state), 8);
  EXPECT_THAT(status.workers.back().why, HasSubstr("pid 78 (helper) still has its lease"));
  EXPECT_THAT(fleet.readers(), HasSubstr("pid 71 (helper) of the dead worker engine (slot "));
  for (Holder i = 1; i <= 8; ++i) tell(event::HolderGone{i});
  EXPECT_THAT(status_of(send()), IsOk());
  EXPECT_EQ(fleet.slot_allocator().all().size(), 2U) << "their slots are freed with them";
}

// A stopped worker may go on at any time; spares= is for it, whatever dead workers left running.
TEST_F(OrphanedLeases, AStoppedWorkerCountsTowardsTheSparesBesideTheHelpersOfDeadOnes) {
  for (Holder i = 1; i <= 6; ++i) {
    hang_up(serve(hello(cat("engine-", i), i)));
    if (i % 2 == 1) tell(event::LeftRunning{.holder = i, .who = "pid 71 (helper)"});
    for (int sends = 0; i < 6 && sends < 2; ++sends) ASSERT_THAT(status_of(send()), IsOk()) << i;
  }
  ASSERT_THAT(status_of(send()), IsOk());
  EXPECT_FALSE(ask()) << "both spare slots are for workers that may go on";
  EXPECT_THAT(fleet.readers(), HasSubstr("engine-6 (slot "));
  EXPECT_EQ(fleet.slot_allocator().spares_used(), 2);
}

class NoSpares : public Replay {
 protected:
  NoSpares() : Replay("spares=0") {
    open();
    send();
  }
};

TEST_F(NoSpares, MeansNoneForTheHelpersOfDeadWorkersEither) {
  hang_up(serve(hello("engine", 1)));
  tell(event::LeftRunning{.holder = 1, .who = "pid 71 (helper)"});
  ASSERT_THAT(status_of(send()), IsOk());
  EXPECT_FALSE(ask());
  EXPECT_THAT(fleet.readers(), HasSubstr("pid 71 (helper) of the dead worker engine (slot 0)"));
}

}  // namespace
}  // namespace bascule::test
