// Whose digest a worker takes for a copy that it shares, and what it does about wrong bytes.
#include "schemes/relay/sharing_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using testing::HasSubstr;

class RelaySharingDigests : public RelaySharing {
 protected:
  // Of version 1, which the owner has, as a worker that shares it has it.
  std::optional<Digest> shared_digest(const Engine& owner, bool verify) {
    introduce(b, owner);
    const RelayMessage take{
        .kind = Kind::kTake, .number = 1, .source = owner.id, .whole = true, .share = true, .verify = verify};
    EXPECT_THAT(receive(b, take, test::patience()).get(), IsOk());
    expect_got(b, 1);
    const auto view = b.receiver->prepare(publication(1), Deadline(test::patience()));
    EXPECT_THAT(view, IsOk());
    if (!view.ok()) return std::nullopt;
    b.receiver->end_read(view->slot);
    return view->digest;
  }
  Digest right() {
    kernels::ThreadPool pool(1);
    return kernels::digest(bytes(), pool);
  }
};

// Wrong bytes that come after the owner has digested its copy are found only by another pass.
TEST_F(RelaySharingDigests, TheOwnersDigestIsTakenUnlessEveryWorkerMustVerify) {
  std::byte* last = nullptr;
  const Engine c =
      make(3, test::host_relay_memory({.after_copy = [&](std::span<std::byte> piece) { last = piece.data(); }}));
  fill(1);
  EXPECT_THAT(receive(c, 1).get(), IsOk());
  expect_got(c, 1);
  EXPECT_EQ(shared_digest(c, false), right());
  EXPECT_EQ(shared_digest(c, true), right());
  *last ^= std::byte{1};
  EXPECT_EQ(shared_digest(c, false), right());
  EXPECT_NE(shared_digest(c, true), right());
}

TEST_F(RelaySharingDigests, IfTheOwnerMakesNoDigestTheWorkerDoes) {
  const Engine c = make_without_buffers(3, test::host_relay_memory(), 2, DigestMode::kOff);
  Engine shows{.id = 3, .line = c.line};
  c.tell({.kind = Kind::kShow});
  shows.shown = c.line->next(Kind::kBuffers);
  fill(1);
  EXPECT_THAT(receive(c, 1).get(), IsOk());
  expect_got(c, 1);
  EXPECT_EQ(shared_digest(shows, false), right());
}

// As every other copy. A sender with digest=always asks also those for a digest that have digest=off.
TEST_F(RelaySharingDigests, WithoutDigestsOneIsMadeOnlyIfTheSenderAsks) {
  b = make_without_buffers(2, test::host_relay_memory(), 2, DigestMode::kOff);
  fill(1);
  EXPECT_THAT(receive(a, 1).get(), IsOk());
  expect_got(a, 1);
  EXPECT_EQ(shared_digest(a, false), std::nullopt);
  EXPECT_EQ(shared_digest(a, true), right());
}

TEST_F(RelaySharingDigests, IfTheOwnerStandsStillTheWorkerDigestsItself) {
  std::promise<void> go_on;
  const Engine c = make(3, test::host_relay_memory({.before_finish = [&, came = go_on.get_future().share()] {
                          came.wait();
                          return absl::OkStatus();
                        }}));
  fill(1);
  auto received = receive(c, 1);
  wait_for(c, 1, 4);
  expect_got(c, 1);
  EXPECT_EQ(shared_digest(c, false), right());
  go_on.set_value();
  EXPECT_THAT(received.get(), IsOk());
}

TEST_F(RelaySharingDigests, AWrongCopyThatIsNotMendedIsAskedForElsewhere) {
  std::byte* last = nullptr;
  const Engine c =
      make(3, test::host_relay_memory({.after_copy = [&](std::span<std::byte> piece) { last = piece.data(); }}));
  introduce(b, c);
  fill(1);
  EXPECT_THAT(receive(c, 1).get(), IsOk());
  *last ^= std::byte{1};
  const RelayMessage take{
      .kind = Kind::kTake, .number = 1, .source = c.id, .whole = true, .share = true, .verify = true};
  EXPECT_THAT(receive(b, take, test::patience()).get(), IsOk());
  expect_got(b, 1);
  Publication sealed = publication(1);
  sealed.digest = right();
  const absl::StatusOr<SlotView> view = b.receiver->prepare(sealed, Deadline(test::patience()));
  ASSERT_THAT(view, IsOk());
  const std::vector<ByteRange> ranges = {{0, kernels::kTileBytes}};
  const absl::StatusOr<Digest> found =
      b.receiver->read_again(sealed, view->slot, ranges, Deadline(absl::Milliseconds(20)));
  ASSERT_THAT(found, IsOk());
  EXPECT_NE(*found, right());
  b.receiver->end_read(view->slot);
  auto again = receive(b, take, test::patience());
  EXPECT_THAT(b.line->next(Kind::kCannot).message.why, HasSubstr("is wrong"));
  go_on(b, 1, kTrainer);
  EXPECT_THAT(again.get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kAlone).message.number, 1U);
  expect_whole(b, 1);
}

// ---- wrong bytes ----

TEST_F(RelaySharing, WhatCameWrongIsReadAgainOnceItIsMended) {
  std::atomic<int> wrong = 1;
  const Engine c = make(3, test::host_relay_memory({.after_copy = [&](std::span<std::byte> piece) {
                          if (wrong-- > 0) piece[7] ^= std::byte{1};
                        }}));
  introduce(b, c);
  fill(1);
  EXPECT_THAT(receive(c, 1).get(), IsOk());
  EXPECT_THAT(share(b, 1, c.id, /*whole=*/true).get(), IsOk());
  kernels::ThreadPool pool(1);
  Publication sealed = publication(1);
  sealed.digest = kernels::digest(bytes(), pool);
  const auto view = [&](const Engine& engine) {
    expect_got(engine, 1);
    return *engine.receiver->prepare(sealed, Deadline(test::patience()));
  };
  const SlotView mine = view(c), shared = view(b);
  EXPECT_NE(mine.digest, sealed.digest);
  EXPECT_NE(shared.digest, sealed.digest);
  const std::vector<ByteRange> ranges = {{0, kernels::kTileBytes}};
  auto again = std::async(std::launch::async, [&] {
    return b.receiver->read_again(sealed, shared.slot, ranges, Deadline(test::patience()));
  });
  rest();
  const absl::StatusOr<Digest> mended = c.receiver->read_again(sealed, mine.slot, ranges, Deadline(test::patience()));
  ASSERT_THAT(mended, IsOk());
  EXPECT_EQ(*mended, sealed.digest);
  const absl::StatusOr<Digest> right = again.get();
  ASSERT_THAT(right, IsOk());
  EXPECT_EQ(*right, sealed.digest);
}

}  // namespace
}  // namespace bascule::inline v0::relay
