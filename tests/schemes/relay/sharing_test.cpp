// Workers of one GPU: the first copies, the others lease its buffers and read them in place.
#include <sys/wait.h>
#include <unistd.h>

#include "schemes/relay/sharing_fixture.h"

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

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

}  // namespace
}  // namespace bascule::inline v0::relay
