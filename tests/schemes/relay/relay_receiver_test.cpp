// A worker's end: it copies from the trainer and other engines while they write, and others read from it.
#include "schemes/relay/relay_receiver_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;
using testing::SizeIs;

using RelayReceiverTest = RelayReceiverFixture;

TEST_F(RelayReceiverTest, ShowsItsPageAndItsBuffers) {
  const Engine engine = make(1);
  EXPECT_THAT(engine.shown.descriptors, SizeIs(3));
  EXPECT_EQ(engine.shown.message.place, "host");
  EXPECT_EQ(engine.shown.message.allocated, kBytes);
  const Engine with_many = make(2, test::host_relay_memory(), 20);
  EXPECT_THAT(with_many.shown.descriptors, SizeIs(1 + kMostBuffers));
}

TEST_F(RelayReceiverTest, CopiesBehindTheTrainer) {
  const Engine engine = make(1);
  fill(1, 0);
  auto received = receive(engine, 1);
  for (const std::uint64_t pieces : {1, 3}) {
    write(pieces);
    wait_for(engine, 1, pieces);
    EXPECT_EQ(engine.here(1), pieces * kPiece);
  }
  EXPECT_TRUE(engine.line->silent());
  write(99);
  EXPECT_THAT(received.get(), IsOk());
  EXPECT_EQ(engine.here(1), kBytes);
  expect_whole(engine, 1);
}

TEST_F(RelayReceiverTest, VersionsComeOneAfterTheOther) {
  const Engine engine = make(1);
  for (Version version = 1; version < 8; ++version) serve(engine, version);
  EXPECT_TRUE(engine.line->silent());
}

TEST_F(RelayReceiverTest, HandsOnWhatHasComeBeforeItIsWhole) {
  const Engine a = make(1), b = make(2), c = make(3);
  introduce(b, a);
  introduce(c, b);
  fill(1, 2);
  auto third = receive(c, 1, 2), second = receive(b, 1, 1), first = receive(a, 1);
  wait_for(c, 1, 2);
  EXPECT_EQ(a.here(1), 2 * kPiece);
  EXPECT_EQ(c.here(1), 2 * kPiece);
  write(99);
  for (auto* const each : {&first, &second, &third}) EXPECT_THAT(each->get(), IsOk());
  for (const Engine* const each : {&a, &b, &c}) expect_whole(*each, 1);
}

TEST_F(RelayReceiverTest, AJoinerCopiesFromAnEngineThatHasAll) {
  const Engine a = make(1), b = make(2);
  serve(a, 1);
  introduce(b, a);
  written = 0;  // the trainer overwrites it
  EXPECT_THAT(receive(b, 1, 1, /*whole=*/true).get(), IsOk());
  expect_whole(b, 1);
}

TEST_F(RelayReceiverTest, GoesOnFromAnotherSourceInTheMiddle) {
  const Engine a = make(1), b = make(2), c = make(3);
  introduce(c, a);
  introduce(c, b);
  fill(1, 1);
  auto first = receive(a, 1), second = receive(b, 1), third = receive(c, 1, 1);
  wait_for(c, 1, 1);
  go_on(c, 1, 2);
  write(2);
  wait_for(c, 1, 2);
  go_on(c, 1, kTrainer);
  write(99);
  for (auto* const each : {&first, &second, &third}) EXPECT_THAT(each->get(), IsOk());
  expect_whole(c, 1);
}

// Memory that its copy engines still read is freed after them.
TEST_F(RelayReceiverTest, ASourceThatIsForgottenInTheMiddleIsReplaced) {
  Engine a = make(1);
  const Engine b = make(2);
  introduce(b, a);
  fill(1, 2);
  auto first = receive(a, 1), second = receive(b, 1, 1);
  wait_for(b, 1, 2);
  a.receiver->close();
  EXPECT_THAT(first.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("lost")));
  a.receiver.reset();
  b.tell({.kind = Kind::kForget, .source = 1});
  const RelayMessage cannot = b.line->next(Kind::kCannot).message;
  EXPECT_EQ(cannot.source, 1u);
  go_on(b, 1, kTrainer);
  write(99);
  EXPECT_THAT(second.get(), IsOk());
  expect_whole(b, 1);
}

// Of a copy from another engine, whose last piece arrived wrong.
TEST_F(RelayReceiverTest, ReadsWrongTilesAgainFromTheTrainersSlot) {
  std::atomic<int> pieces = 0;
  const Engine a = make(1);
  const Engine b = make(2, test::host_relay_memory({.after_copy = [&](std::span<std::byte> piece) {
                          if (++pieces <= 2) piece[7] ^= std::byte{1};
                        }}));
  introduce(b, a);
  serve(a, 1);
  EXPECT_THAT(receive(b, 1, 1, /*whole=*/true).get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kGot).message.number, 1u);
  const absl::StatusOr<SlotView> view = b.receiver->prepare(publication(1), Deadline(test::patience()));
  ASSERT_THAT(view, IsOk());
  kernels::ThreadPool pool(1);
  const Digest right = kernels::digest(bytes(), pool);
  EXPECT_NE(view->digest, right);
  const auto again = [&](std::vector<ByteRange> ranges) {
    return b.receiver->read_again(publication(1), view->slot, ranges, Deadline(test::patience()));
  };
  const absl::StatusOr<Digest> half = again({{0, kernels::kTileBytes}});
  ASSERT_THAT(half, IsOk());
  EXPECT_NE(*half, right) << "the second piece is wrong too";
  const absl::StatusOr<Digest> whole = again({{kPiece, kPiece + kernels::kTileBytes}});
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(*whole, right);
  EXPECT_TRUE(std::ranges::equal(view->bytes, bytes()));
  written = 0;  // the trainer overwrites it
  EXPECT_THAT(again({{0, kernels::kTileBytes}}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no longer has version 1")));
  b.receiver->end_read(view->slot);
  EXPECT_THAT(again({{0, kernels::kTileBytes}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not being read")));
}

TEST_F(RelayReceiverTest, MessagesMayComeBeforeTheReceiveBegins) {
  const Engine engine = make(1);
  go_on(engine, 1, kTrainer);
  EXPECT_THAT(receive(engine, 1, /*source=*/77).get(), IsOk());
  expect_whole(engine, 1);
}

TEST_F(RelayReceiverTest, AVersionThatWasGivenUpBeforeItBeginsIsNotTaken) {
  const Engine engine = make(1);
  engine.tell({.kind = Kind::kOver, .number = 1});
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
  EXPECT_THAT(receive(engine, 1).get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
  serve(engine, 2);
}

TEST_F(RelayReceiverTest, AVersionThatIsGivenUpInTheMiddleEndsAndIsShownNoMore) {
  const Engine engine = make(1);
  fill(1, 2);
  auto received = receive(engine, 1);
  wait_for(engine, 1, 2);
  engine.tell({.kind = Kind::kOver, .number = 1});
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
  EXPECT_FALSE(engine.progress->find(1));
  EXPECT_FALSE(engine.receiver->prepare(publication(1), Deadline(absl::ZeroDuration())).ok());
  serve(engine, 2);
}

TEST_F(RelayReceiverTest, AVersionThatComesTooLateIsRefused) {
  const Engine engine = make(1);
  fill(1, 2);
  auto received = receive(engine, 1, kTrainer, false, {}, absl::Milliseconds(30));
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("in time")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
}

// ---- which buffers it may use ----

TEST_F(RelayReceiverTest, ACopyThatOthersReadIsNotWritten) {
  const Engine a = make(1), b = make(2);
  serve(a, 1);
  introduce(b, a);
  fill(2);
  EXPECT_THAT(receive(a, 2, kTrainer, false, /*spared=*/{1}).get(), IsOk());
  EXPECT_EQ(a.line->next(Kind::kGot).message.number, 2u);
  EXPECT_EQ(a.here(1), kBytes);
  fill(1);
  written = 0;
  EXPECT_THAT(receive(b, 1, 1, /*whole=*/true).get(), IsOk());
  expect_whole(b, 1);
}

TEST_F(RelayReceiverTest, WhenAllBuffersAreTakenAVersionComesAlone) {
  const Engine engine = make(1);
  const SlotView read = hold(engine, 1);
  serve(engine, 2);
  fill(3);
  EXPECT_THAT(receive(engine, 3, kTrainer, false, /*spared=*/{2}).get(), IsOk());
  EXPECT_EQ(engine.line->next(Kind::kAlone).message.number, 3u);
  EXPECT_FALSE(engine.progress->find(3));
  expect_whole(engine, 3);
  engine.receiver->end_read(read.slot);
  serve(engine, 4);
  EXPECT_EQ(engine.here(4), kBytes) << "to a buffer that others see";
}

TEST_F(RelayReceiverTest, WithoutRoomItRefusesTheVersionAndLeaves) {
  RelayMemory memory = test::host_relay_memory();
  const auto room = std::make_shared<std::atomic<int>>(2);
  memory.make_buffer = [room, make_buffer = memory.make_buffer](std::uint64_t bytes) -> absl::StatusOr<ShownMemory> {
    if ((*room)-- <= 0) return absl::ResourceExhaustedError("no memory");
    return make_buffer(bytes);
  };
  const Engine without = make_without_buffers(2, memory, 3);
  without.tell({.kind = Kind::kShow});
  const Line::Said shown = without.line->next(Kind::kBuffers);
  EXPECT_EQ(shown.message.why, "no memory");
  EXPECT_TRUE(shown.descriptors.empty());
  *room = 2;
  const Engine engine = make(1, memory);
  const SlotView read = hold(engine, 1);
  serve(engine, 2);
  EXPECT_THAT(receive(engine, 3, kTrainer, false, {2}).get(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 3u);
  engine.receiver->end_read(read.slot);
  serve(engine, 4);
}

TEST_F(RelayReceiverTest, AVersionOfAnotherSizeIsRefused) {
  const Engine engine = make(1);
  Publication other = publication(1);
  other.bytes = kBytes - 1;
  EXPECT_THAT(engine.receiver->receive(other, to_bytes({.kind = Kind::kTake, .number = 1}), Deadline(test::patience())),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bytes")));
  EXPECT_EQ(engine.line->next(Kind::kLeft).message.number, 1u);
}

}  // namespace
}  // namespace bascule::inline v0::relay
