// The ends of deliveries that are stopped, fail, or are under way when the sender closes.
#include "schemes/auto/sender_fixture.h"

namespace bascule::inline v0 {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using AutoSenderEnds = AutoSenderTest;

TEST_F(AutoSenderEnds, StoppedWhileAWorkerHasNotSpokenItIsDone) {
  ASSERT_THAT(join(1), IsOk());
  deliver(8, {1});
  sender.stop(8);
  EXPECT_THAT(done[8], ElementsAre(_));
  sender.heard(1, "late", {});
  EXPECT_THAT(told, ElementsAre("receive 1 late")) << "nothing is delivered to it any more";
}

TEST_F(AutoSenderEnds, StoppedWhileTheInnerSchemeDeliversItIsDoneOnceThatIs) {
  join_device(2);
  deliver(8, {2});
  sender.stop(8);
  EXPECT_EQ(told.back(), "stop it");
  line.run();
  EXPECT_THAT(done, IsEmpty());
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
}

TEST_F(AutoSenderEnds, StoppedWhileTheSlotIsWrittenItsMirrorIsNotFilled) {
  join_host(1);
  ASSERT_TRUE(is_shown(1, 2));
  slot.begin();
  deliver(8, {1});
  line.run();
  EXPECT_THAT(done, IsEmpty());
  sender.stop(8);
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(StatusIs(absl::StatusCode::kCancelled, _)));
  EXPECT_EQ(ends_of(line.shown_to(1, 0)), both(0));
}

TEST_F(AutoSenderEnds, StoppedWhileTheMirrorIsFilledItIsDoneOnceTheSlotIsReadNoMore) {
  Gate gate;
  hooks.before_copy_to_host = [&] { return gate.pass(); };
  join_host(1);
  deliver(8, {1});
  ASSERT_TRUE(line.run_until([&] { return gate.reached(); }));
  sender.stop(8);
  line.run();
  EXPECT_THAT(done, IsEmpty());
  gate.open();
  EXPECT_TRUE(ends(8));
}

TEST_F(AutoSenderEnds, StoppedAgainOrWhenItIsDoneNothingHappens) {
  join_device(2);
  deliver(8, {2});
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(8));
  sender.stop(8);
  sender.stop(99);
  line.run();
  EXPECT_THAT(told, ElementsAre("receive 2 on a GPU", "deliver to 2"));
  EXPECT_THAT(done[8], ElementsAre(IsOk()));
}

TEST_F(AutoSenderEnds, AnErrorOfAPartIsThatOfTheDeliveryOnceAllHaveEnded) {
  hooks.before_copy_to_host = [] { return absl::InternalError("no copy today"); };
  join_host(1);
  join_device(2);
  deliver(8, {1, 2});
  inner.end(inner.numbers.back(), absl::AbortedError("nor by the relay"));
  ASSERT_TRUE(ends(8));
  EXPECT_THAT(done[8], ElementsAre(testing::Not(IsOk())));
  deliver(9, {2});
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(9));
  EXPECT_THAT(done[9], ElementsAre(IsOk())) << "the next is another";
}

TEST_F(AutoSenderEnds, DeliveriesEndEachForItself) {
  join_host(1);
  join_device(2);
  ASSERT_TRUE(is_shown(1, 2));
  slot.begin();
  deliver(8, {1});  // waits for the slot
  deliver(9, {2});
  inner.end(inner.numbers.back());
  ASSERT_TRUE(ends(9));
  EXPECT_FALSE(done.contains(8));
  slot.write(6);
  ASSERT_TRUE(ends(8));
}

TEST_F(AutoSenderEnds, ClosedWithEverythingUnderWayItCallsNobody) {
  join_host(1);
  join_device(2);
  ASSERT_THAT(join(3), IsOk());
  ASSERT_TRUE(is_shown(1, 2));
  slot.begin();
  deliver(8, {1, 2, 3});
  join_host(4);
  sender.unmake_slot(other.id);
  sender.close();
  const std::size_t said = line.said();
  slot.write(6);
  sender.unmake_slot(slot.id);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(line.said(), said);
  EXPECT_THAT(done, IsEmpty());
  EXPECT_EQ(ends_of(line.shown_to(1, 0)), both(0));
}

TEST_F(AutoSenderEnds, AWorkerThatComesBackIsShownTheSameMirrors) {
  join_host(1);
  ASSERT_TRUE(is_shown(1, 2));
  deliver(8, {1});
  ASSERT_TRUE(ends(8));
  sender.remove(1);
  join_host(2);
  ASSERT_TRUE(is_shown(2, 2));
  EXPECT_EQ(ends_of(line.shown_to(2, 0)), both(5)) << "with what it may still be reading";
}

}  // namespace
}  // namespace bascule::inline v0
