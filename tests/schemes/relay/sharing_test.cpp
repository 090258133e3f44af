// Workers of one GPU: the first copies, the others lease its buffers and read them in place.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "schemes/relay/relay_receiver_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class RelaySharing : public RelayReceiverFixture {
 protected:
  RelaySharing() : a(make(1)), b(make_without_buffers(2)) { introduce(b, a); }

  // Both get the version, the second one in place.
  void get(Version version) {
    fill(version);
    auto shared = share(b, version, a.id), copied = receive(a, version);
    EXPECT_THAT(copied.get(), IsOk());
    EXPECT_THAT(shared.get(), IsOk());
    expect_got(a, version);
    expect_got(b, version);
  }
  static void expect_got(const Engine& engine, Version version) {
    EXPECT_EQ(engine.line->next(Kind::kGot).message.number, version);
  }
  // Whether both views show the same pages.
  static bool same_memory(const SlotView& one, const SlotView& other) {
    const auto file_of = [](const SlotView& view) {
      std::ifstream maps("/proc/self/maps");
      const auto at = reinterpret_cast<std::uintptr_t>(view.bytes.data());
      for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        unsigned long offset = 0, inode = 0;
        char access[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %lu", &begin, &end, access, &offset, &inode) != 5) continue;
        if (at < begin || at >= end) continue;
        EXPECT_STREQ(access, "r--s") << "an engine must not write what others share";
        return inode;
      }
      return 0UL;
    };
    return file_of(one) == file_of(other) && file_of(one) != 0;
  }

  Engine a, b;
};

TEST_F(RelaySharing, ReadsTheOtherEnginesCopyWhereItComesTo) {
  for (Version version = 1; version < 8; ++version) {
    get(version);
    const SlotView mine = take(a, version), shared = take(b, version);
    EXPECT_TRUE(same_memory(mine, shared));
    a.receiver->end_read(mine.slot);
    b.receiver->end_read(shared.slot);
  }
  EXPECT_TRUE(a.line->silent());
  EXPECT_TRUE(b.line->silent());
}

TEST_F(RelaySharing, FollowsTheCopyPieceByPiece) {
  fill(1, 2);
  auto copied = receive(a, 1), shared = share(b, 1, a.id);
  wait_for(a, 1, 2);
  rest();
  EXPECT_TRUE(b.line->silent());
  write(99);
  EXPECT_THAT(copied.get(), IsOk());
  EXPECT_THAT(shared.get(), IsOk());
  expect_whole(a, 1);
  expect_whole(b, 1);
}

TEST_F(RelaySharing, ALateEngineSharesWhatIsThere) {
  const SlotView mine = hold(a, 1);
  written = 0;  // the trainer overwrites it
  EXPECT_THAT(share(b, 1, a.id, /*whole=*/true).get(), IsOk());
  expect_got(b, 1);
  EXPECT_TRUE(same_memory(mine, take(b, 1)));
}

// Even without a word from the sender, which might have lost either of them.
TEST_F(RelaySharing, WhatTheOtherReadsIsNotWrittenUntilItEnds) {
  get(1);
  const SlotView shared = take(b, 1);
  a.receiver->end_read(take(a, 1).slot);
  const std::vector<std::byte> before(shared.bytes.begin(), shared.bytes.end());
  serve(a, 2);  // into the other buffer
  const SlotView mine = hold(a, 3);
  fill(4);
  EXPECT_THAT(receive(a, 4).get(), IsOk());
  EXPECT_EQ(a.line->next(Kind::kAlone).message.number, 4U) << "neither buffer is free";
  expect_whole(a, 4);
  EXPECT_TRUE(std::ranges::equal(shared.bytes, before));
  b.receiver->end_read(shared.slot);
  a.receiver->end_read(mine.slot);
  for (const Version version : {5, 6}) serve(a, version);
  EXPECT_TRUE(a.line->silent());
}

// No engine takes an aborted version, and its leases end in time for the next one.
TEST_F(RelaySharing, AVersionThatIsNotTakenGivesWay) {
  get(1);
  const SlotView mine = take(a, 1), shared = take(b, 1);
  for (Version version = 2; version < 6; ++version) get(version);
  EXPECT_TRUE(a.line->silent()) << "it never needed other memory";
  EXPECT_TRUE(same_memory(take(a, 5), take(b, 5)));
}

TEST_F(RelaySharing, TheLeaseOfAKilledProcessEnds) {
  a.progress.reset();
  fill(1);
  EXPECT_THAT(receive(a, 1).get(), IsOk());
  expect_whole(a, 1);
  const absl::StatusOr<ProgressView> page = ProgressView::map(a.shown.descriptors.front().get());
  ASSERT_THAT(page, IsOk());
  const std::size_t buffer = page->find(1)->buffer;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const int descriptor = ::dup(a.shown.descriptors.front().get());
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::StatusOr<ProgressView> theirs = ProgressView::map(descriptor);
    const absl::StatusOr<ProcessFd> lease = theirs.ok() ? theirs->lease(buffer) : theirs.status();
    const char said = lease.ok() ? 'y' : 'n';
    if (::write(ready[1], &said, 1) == 1) ::pause();
    ::_exit(1);
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  for (const Version version : {2, 3}) serve(a, version);
  EXPECT_NE(ProgressView::map(descriptor)->find(3)->buffer, buffer) << "it is leased";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const Version version : {4, 5}) serve(a, version);
  EXPECT_TRUE(ProgressView::map(descriptor)->find(4)->buffer == buffer ||
              ProgressView::map(descriptor)->find(5)->buffer == buffer);
  for (const int fd : {ready[0], ready[1], descriptor}) ::close(fd);
}

TEST_F(RelaySharing, TheCopyOutlivesItsEngine) {
  get(1);
  const SlotView shared = take(b, 1);
  a.receiver.reset();
  b.tell({.kind = Kind::kForget, .source = a.id});
  rest();
  EXPECT_TRUE(std::ranges::equal(shared.bytes, bytes()));
  b.show();
  fill(2);
  EXPECT_THAT(receive(b, 2).get(), IsOk());
  expect_got(b, 2);
  b.receiver->end_read(shared.slot);
  b.receiver->end_read(take(b, 2).slot);
}

// ---- the digest ----

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

// ---- which engine shows buffers ----

// So a worker that stays on an old version does not keep the others from going on.
TEST_F(RelaySharing, AnEngineWithWhichOthersShareShowsOneBufferMore) {
  a.tell({.kind = Kind::kShow, .share = true});
  a.expect_shown();
  EXPECT_THAT(a.shown.descriptors, testing::SizeIs(4));
  introduce(b, a);
  get(1);
  const SlotView stays = take(b, 1);
  std::optional<SlotView> mine = take(a, 1);
  for (Version version = 2; version < 8; ++version) {
    fill(version);
    EXPECT_THAT(receive(a, version).get(), IsOk());
    expect_got(a, version);
    const SlotView next = take(a, version);
    a.receiver->end_read(std::exchange(mine, next)->slot);
  }
  EXPECT_TRUE(a.line->silent()) << "none came alone";
  a.tell({.kind = Kind::kShow, .share = true});
  rest();
  EXPECT_TRUE(a.line->silent()) << "it has shown them";
  b.receiver->end_read(stays.slot);
}

TEST_F(RelaySharing, WithoutRoomForThatItGoesOnWithWhatItHas) {
  RelayMemory memory = test::host_relay_memory();
  const auto room = std::make_shared<std::atomic<int>>(2);
  memory.make_buffer = [room, make_buffer = memory.make_buffer](std::uint64_t bytes) -> absl::StatusOr<ShownMemory> {
    if ((*room)-- <= 0) return absl::ResourceExhaustedError("no memory");
    return make_buffer(bytes);
  };
  const Engine c = make(3, memory);
  c.tell({.kind = Kind::kShow, .share = true});
  rest();
  EXPECT_TRUE(c.line->silent());
  serve(c, 1);
}

TEST_F(RelaySharing, ABufferHasTheSameNumberEachTime) {
  std::map<std::uint32_t, const std::byte*> addresses;
  std::optional<SlotView> before;
  for (Version version = 1; version < 8; ++version) {
    get(version);
    const SlotView shared = take(b, version), mine = take(a, version);
    EXPECT_EQ(addresses.emplace(shared.slot.index, shared.bytes.data()).first->second, shared.bytes.data());
    if (before) a.receiver->end_read(before->slot);
    before = mine;
    b.receiver->end_read(shared.slot);
    ASSERT_TRUE(b.receiver->find(shared.slot));
    EXPECT_EQ(b.receiver->find(shared.slot)->bytes.data(), shared.bytes.data());
  }
  EXPECT_EQ(addresses.size(), 2U);
  b.tell({.kind = Kind::kForget, .source = a.id});
  const Deadline deadline(test::patience());
  while (b.receiver->find({1, addresses.begin()->first}) && !deadline.passed()) rest();
  EXPECT_FALSE(b.receiver->find({1, addresses.begin()->first})) << "it is no longer mapped";
}

TEST_F(RelaySharing, AnEngineThatHidesItsBuffersFreesThemAndShares) {
  const SlotView mine = hold(a, 1);
  a.receiver->close();
  a.open_again();
  EXPECT_EQ(a.shown.message.version, 1U);
  a.tell({.kind = Kind::kHide});
  const Engine c = make(3);
  introduce(a, c);
  fill(2);
  auto shared = share(a, 2, c.id), copied = receive(c, 2);
  EXPECT_THAT(copied.get(), IsOk());
  EXPECT_THAT(shared.get(), IsOk());
  expect_got(a, 2);
  expect_got(c, 2);
  EXPECT_TRUE(same_memory(take(a, 2), take(c, 2)));
  a.receiver->end_read(mine.slot);
  EXPECT_FALSE(a.receiver->find(mine.slot));
  a.receiver->close();
  a.open_without_buffers();
  a.show();
  EXPECT_EQ(a.shown.message.version, 0U);
}

TEST_F(RelaySharing, AMessageToShareTheTrainersSlotMeansToCopyIt) {
  EXPECT_THAT(share(b, 1, kTrainer).get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kAlone).message.number, 1U);
  expect_whole(b, 1);
}

// A lease that does not end is waited for once.
TEST_F(RelaySharing, AStuckLeaseDelaysOneVersion) {
  get(1);
  const SlotView shared = take(b, 1);
  a.receiver->end_read(take(a, 1).slot);
  std::vector<std::chrono::steady_clock::duration> times;
  std::optional<SlotView> mine;
  for (Version version = 2; version < 8; ++version) {
    fill(version);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(receive(a, version).get(), IsOk());
    times.push_back(std::chrono::steady_clock::now() - begin);
    if (version % 2 == 1) {
      EXPECT_EQ(a.line->next(Kind::kAlone).message.number, version);
    }
    expect_got(a, version);
    const SlotView next = take(a, version);
    if (mine) a.receiver->end_read(mine->slot);
    mine = next;
  }
  EXPECT_GE(std::ranges::count_if(times, [](auto each) { return each >= std::chrono::milliseconds(20); }), 1);
  b.receiver->end_read(shared.slot);
}

// ---- if it must copy after all ----

TEST_F(RelaySharing, IfTheOtherGivesTheVersionUpItIsCopied) {
  fill(1, 2);
  auto copied = receive(a, 1), shared = share(b, 1, a.id);
  wait_for(a, 1, 2);
  rest();
  a.tell({.kind = Kind::kOver, .number = 1});
  EXPECT_THAT(copied.get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  go_on(b, 1, kTrainer);
  write(99);
  EXPECT_THAT(shared.get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kAlone).message.number, 1U);
  expect_whole(b, 1);
  EXPECT_EQ(a.line->next(Kind::kLeft).message.number, 1U);
  serve(a, 2);
}

TEST_F(RelaySharing, AVersionThatIsNoLongerThereIsAskedForElsewhere) {
  hold(a, 1);
  fill(2);
  auto shared = share(b, 2, a.id, /*whole=*/true);
  EXPECT_THAT(b.line->next(Kind::kCannot).message.why, HasSubstr("no longer"));
  go_on(b, 2, kTrainer);
  EXPECT_THAT(shared.get(), IsOk());
  EXPECT_EQ(b.line->next(Kind::kAlone).message.number, 2U);
  expect_whole(b, 2);
}

TEST_F(RelaySharing, AVersionThatIsGivenUpInTheMiddleEndsItsLease) {
  fill(1, 2);
  auto copied = receive(a, 1), shared = share(b, 1, a.id);
  wait_for(a, 1, 2);
  rest();
  for (const Engine* const each : {&a, &b}) each->tell({.kind = Kind::kOver, .number = 1});
  EXPECT_THAT(shared.get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  EXPECT_THAT(copied.get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  for (const Engine* const each : {&a, &b}) EXPECT_EQ(each->line->next(Kind::kLeft).message.number, 1U);
  get(2);
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
