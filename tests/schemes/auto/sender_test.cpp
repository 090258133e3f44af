// The sender's end: how each worker is served, and what it is shown.
#include "schemes/auto/sender_fixture.h"

namespace bascule::inline v0 {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(AutoSenderTest, BeginsWhileTheSlotIsWritten) { EXPECT_TRUE(sender.starts_while_written()); }

TEST_F(AutoSenderTest, AFirstWordTellsWhereAWorkerReads) {
  join_host(1);
  join_device(2);
  EXPECT_THAT(told, ElementsAre("receive 2 on a GPU"));
  ASSERT_TRUE(is_shown(1, 2));
  EXPECT_THAT(line.messages_to(1), ElementsAre("mirror of 0", "mirror of 1"));
  EXPECT_THAT(line.messages_to(2), IsEmpty());
}

TEST_F(AutoSenderTest, LaterWordsAreTheInnerSchemesAndChangeNothing) {
  join_host(1);
  join_device(2);
  ASSERT_TRUE(is_shown(1, 2));
  sender.heard(1, "strange", {});
  sender.heard(1, kWantsMirrors, {});
  sender.heard(2, kWantsMirrors, {});
  sender.heard(99, "a stranger's", {});
  EXPECT_THAT(told, ElementsAre("receive 2 on a GPU", "receive 1 strange", "receive 99 a stranger's"));
  deliver(1, {1, 2});
  EXPECT_EQ(told.back(), "deliver to 2");
  EXPECT_EQ(line.said(), 2u);
}

TEST_F(AutoSenderTest, WhatComesWithAWordIsClosed) {
  join_host(1);
  ASSERT_TRUE(is_shown(1, 2));
  const auto before = open_files();
  std::vector<UniqueFd> descriptors;
  descriptors.emplace_back(::dup(slot.memory.descriptor.get()));
  sender.heard(1, kWantsMirrors, std::move(descriptors));
  EXPECT_EQ(open_files(), before);
}

TEST_F(AutoSenderTest, ADeliveryIsSplitAndDoneOnceAllPartsAre) {
  join_host(1);
  join_device(2);
  join_device(3);
  ASSERT_TRUE(is_shown(1, 2));
  deliver(8, {1, 2, 3});
  EXPECT_EQ(told.back(), "deliver to 2 3");
  EXPECT_TRUE(line.run_until([&] { return ends_of(line.shown_to(1, 0)) == both(5); }));
  line.run();
  EXPECT_THAT(done, IsEmpty());
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

TEST_F(AutoSenderTest, ADeliveryToGPUsAloneMirrorsNothing) {
  join_host(1);
  join_device(2);
  ASSERT_TRUE(is_shown(1, 2));
  deliver(8, {2});
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_EQ(ends_of(line.shown_to(1, 0)), both(0));
}

TEST_F(AutoSenderTest, ADeliveryToNobodyIsDoneAtOnce) {
  deliver(8, {});
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
  deliver(9, {77});
  EXPECT_THAT(done[9], ElementsAre(IsOk())) << "nor is one that has left";
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(AutoSenderTest, APartThatEndsFromWithinTheCallIsDone) {
  inner.ends_at_once = true;
  join_device(2);
  deliver(8, {2});
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

// ---- workers of other hosts ----

TEST_F(AutoSenderTest, ADeliveryToOtherHostsGoesByTheirScheme) {
  join_host(1);
  join_device(2);
  join_over_tcp(3);
  ASSERT_TRUE(is_shown(1, 2));
  told.clear();
  deliver(8, {1, 2, 3});
  EXPECT_THAT(told, ElementsAre("deliver to 2", "others' deliver to 3"));
  inner.end(inner.numbers.back());
  line.run();
  EXPECT_THAT(done, IsEmpty());
  others.end(others.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

TEST_F(AutoSenderTest, AWorkerOfAnotherHostIsHeardByItsSchemeFromTheFirstWordOn) {
  join_over_tcp(3);
  deliver(8, {3});
  sender.heard(3, kWantsMirrors, {});
  EXPECT_THAT(told, ElementsAre("others' deliver to 3", cat("others' receive 3 ", kWantsMirrors)));
  sender.stop(8);
  sender.remove(3);
  EXPECT_THAT(told, testing::Contains("others' stop it"));
  EXPECT_EQ(told.back(), "others' remove 3");
  others.end(others.numbers.back(), absl::CancelledError("stopped"));
  ASSERT_TRUE(ends(8));
  EXPECT_EQ(line.said(), 0u);
}

TEST_F(AutoSenderTest, AnErrorOfOtherHostsAbortsTheVersion) {
  join_device(2);
  join_over_tcp(3);
  deliver(8, {2, 3});
  others.end(others.numbers.back(), absl::UnavailableError("the network is gone"));
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the network is gone"))));
}

TEST_F(AutoSenderTest, WhereOtherHostsCannotBeServedAnyMoreTheyAloneAreGivenUp) {
  join_device(2);
  join_over_tcp(3);
  deliver(8, {2, 3});
  others.end(others.numbers.back(), absl::FailedPreconditionError("restart the trainer"));
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
  EXPECT_THAT(line.given_up(2), IsOk());
  EXPECT_THAT(line.given_up(3), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("restart the trainer")));

  told.clear();
  deliver(9, {2, 3});  // before it is removed
  EXPECT_THAT(told, ElementsAre("deliver to 2"));
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(9));
  EXPECT_THAT(done[9], ElementsAre(IsOk()));

  const OfferedSlot slots[] = {slot.offered()};
  EXPECT_THAT(sender.offer(3, ConnectionKind::kTcp, slots).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("restart")));
  EXPECT_THAT(sender.offer(4, ConnectionKind::kTcp, slots).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("restart")));
  EXPECT_THAT(sender.offer(5, ConnectionKind::kUnixSocket, slots).status(), IsOk());
}

TEST_F(AutoSenderTest, WithoutAPlaceForThemAWorkerOfAnotherHostIsRefused) {
  AutoSender alone(std::make_unique<Inner>(told), nullptr,
                   [](int) { return test::host_relay_memory({}).open_queue(); });
  const OfferedSlot slots[] = {slot.offered()};
  EXPECT_THAT(alone.offer(3, ConnectionKind::kTcp, slots),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("listen=")));
}

TEST_F(AutoSenderTest, SaysTheWayOfEachWorker) {
  ASSERT_THAT(join(4), IsOk());
  join_host(1);
  join_device(2);
  join_over_tcp(3);
  EXPECT_EQ(sender.path(1), "mirror");
  EXPECT_EQ(sender.path(2), "its own");
  EXPECT_EQ(sender.path(3), "nccl");
  EXPECT_EQ(sender.path(4), "") << "it has not spoken";
  EXPECT_EQ(sender.path(77), "");
}

// ---- workers that speak late ----

TEST_F(AutoSenderTest, AWorkerOnAGPUThatSpeaksLateHasAPartOfItsOwn) {
  join_device(2);
  ASSERT_THAT(join(3), IsOk());
  deliver(8, {2, 3});
  inner.end(inner.numbers.back());
  line.run();
  EXPECT_THAT(done, IsEmpty());
  sender.heard(3, "late", {});
  EXPECT_THAT(told, ElementsAre("receive 2 on a GPU", "deliver to 2", "receive 3 late", "deliver to 3"));
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

TEST_F(AutoSenderTest, AWorkerOnTheHostThatSpeaksLateHasTheMirrorFilled) {
  ASSERT_THAT(join(1), IsOk());
  deliver(8, {1});
  line.run();
  EXPECT_THAT(done, IsEmpty());
  sender.heard(1, kWantsMirrors, {});
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
  EXPECT_EQ(ends_of(line.shown_to(1, 0)), both(5));
}

TEST_F(AutoSenderTest, AWorkerThatLeavesWithoutAWordIsNotWaitedFor) {
  ASSERT_THAT(join(1), IsOk());
  deliver(8, {1});
  sender.remove(1);
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
  EXPECT_THAT(told, ElementsAre("remove 1"));
  sender.heard(1, kWantsMirrors, {});
  EXPECT_EQ(line.said(), 0u);
}

TEST_F(AutoSenderTest, AWorkerThatIsRefusedIsNotWaitedFor) {
  inner.offers = absl::ResourceExhaustedError("no more");
  EXPECT_THAT(join(1), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no more")));
  deliver(8, {1});
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

// ---- slots that come and go ----

TEST_F(AutoSenderTest, ALaterSlotIsShownToWorkersOnTheHostOnly) {
  join_host(1);
  join_device(2);
  ASSERT_THAT(join(3), IsOk());
  ASSERT_TRUE(is_shown(1, 2));
  TrainersSlot spare(4);
  const OfferedSlot slots[] = {spare.offered()};
  for (const WorkerId worker : {1, 2, 3}) ASSERT_THAT(sender.offer(worker, ConnectionKind::kUnixSocket, slots), IsOk());
  ASSERT_TRUE(is_shown(1, 3));
  EXPECT_EQ(line.messages_to(1).back(), "mirror of 4");
  sender.heard(3, kWantsMirrors, {});
  ASSERT_TRUE(is_shown(3, 3));
  EXPECT_THAT(line.messages_to(3), Contains("mirror of 4"));
  EXPECT_THAT(line.messages_to(2), IsEmpty());
}

TEST_F(AutoSenderTest, ASlotThatIsGoneIsNotShown) {
  sender.unmake_slot(other.id);
  EXPECT_THAT(told, ElementsAre("unmake 1")) << "at once, on the caller's thread";
  line.run();
  const OfferedSlot slots[] = {slot.offered()};
  ASSERT_THAT(sender.offer(1, ConnectionKind::kUnixSocket, slots), IsOk());
  sender.heard(1, kWantsMirrors, {});
  ASSERT_TRUE(is_shown(1, 1));
  EXPECT_THAT(line.messages_to(1), ElementsAre("mirror of 0"));
}

TEST_F(AutoSenderTest, ASlotMayGoWhileItsMirrorIsStillToBeMade) {
  Gate gate;
  hooks.before_window = [&] { return gate.pass(); };
  const auto before = open_files();
  {
    TrainersSlot spare(4);
    const OfferedSlot slots[] = {slot.offered(), spare.offered()};
    ASSERT_THAT(sender.offer(1, ConnectionKind::kUnixSocket, slots), IsOk());
    sender.heard(1, kWantsMirrors, {});
    ASSERT_TRUE(line.run_until([&] { return gate.reached(); }));
    sender.unmake_slot(spare.id);
  }
  gate.open();
  ASSERT_TRUE(is_shown(1, 2));
  TrainersSlot last(5);
  const OfferedSlot slots[] = {last.offered()};
  ASSERT_THAT(sender.offer(1, ConnectionKind::kUnixSocket, slots), IsOk());
  ASSERT_TRUE(is_shown(1, 3));
  EXPECT_EQ(open_files(), before + 6) << "three were shown, two are left, and the last slot";
}

TEST_F(AutoSenderTest, WhereAMirrorCannotBeMadeItsReadersAloneAreGivenUp) {
  hooks.before_window = [] { return absl::ResourceExhaustedError("no room"); };
  join_host(1);
  join_device(2);
  deliver(8, {1, 2});
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(IsOk())) << "the others have it";
  EXPECT_THAT(line.given_up(1), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("mirror of slot")));
  EXPECT_THAT(line.given_up(2), IsOk());
}

}  // namespace
}  // namespace bascule::inline v0
