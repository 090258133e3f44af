// A worker's end, with messages in orders that are rare between two processes. The test is the sender.
#include <bascule/schemes/nccl/receiver.h>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "support/schemes/host_place.h"
#include "support/status.h"
#include "support/timing.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/offer.h>

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::FakeNccl;
using test::HostPlace;
using test::IsOk;
using test::kHostPiece;
using test::patience;
using test::StatusIs;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = GroupMessage::Kind;

class Line final : public SenderLine {
 public:
  void say(std::string bytes, std::vector<ProcessFd>) override {
    const absl::StatusOr<GroupMessage> message = parse_message(bytes);
    const std::lock_guard lock(mutex_);
    said_.push_back(message.ok() ? *message : GroupMessage{});
    changed_.notify_all();
  }
  GroupMessage next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, Deadline(patience()).at(), [this] { return !said_.empty(); })) {
      ADD_FAILURE() << "the worker says nothing";
      return {};
    }
    GroupMessage message = said_.front();
    said_.pop_front();
    return message;
  }
  GroupMessage next(Kind kind) {
    GroupMessage message = next();
    EXPECT_EQ(static_cast<int>(message.kind), static_cast<int>(kind)) << message.why;
    return message;
  }
  bool silent() {
    const std::lock_guard lock(mutex_);
    return said_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GroupMessage> said_;
};

class NcclReceiver : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 4 * kHostPiece + 100;

  NcclReceiver() { fake.renew(); }
  ~NcclReceiver() override {
    receiver.reset();
    planner_.clear();
    wait_for_no_communicator();
    EXPECT_EQ(fake.live_comms(), 0);
    EXPECT_EQ(fake.live_threads(), 0);
    EXPECT_THAT(fake.misuse_texts(), IsEmpty());
    fake.renew();
  }

  void attach(std::uint64_t bytes = kBytes) {
    slot.assign(bytes, std::byte{7});
    const Dependencies dependencies{.library = [this] { return &fake.library(); },
                                    .place = [this](int) { return place; },
                                    .piece_bytes = kHostPiece};
    receiver.emplace(dependencies, Endpoint{});
    const NcclOffer offer{.environment = *read_environment(fake.library()), .piece_bytes = kHostPiece};
    ASSERT_THAT(receiver->accept({.bytes = to_bytes(offer), .descriptors = {}, .slots = {}, .slot_bytes = bytes}),
                IsOk());
    receiver->open(line);
  }
  void tell(GroupMessage message) { receiver->heard(to_bytes(message), {}); }
  void join(CommGroupId group) {
    UniqueId id;
    ASSERT_EQ(fake.library().get_unique_id(&id), Code::kSuccess);
    planner_[group] = std::make_unique<Communicator>(
        fake.library(), std::make_shared<HostPlace>(), Rank{.group = group, .rank = 0, .ranks = 2, .id = id},
        Communicator::Options{}, Communicator::Handlers{.made = [](const absl::Status&) {}, .ended = [] {}});
    tell({.kind = Kind::kMake, .group = group, .rank = 1, .ranks = 2, .id = id});
    EXPECT_EQ(line->next(Kind::kMade).group, group);
  }
  void leave(CommGroupId group) { planner_.erase(group); }
  // This end's part.
  std::future<absl::Status> broadcast(CommGroupId group, std::uint64_t from = 0, std::uint64_t written = ~0ULL) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    planner_.at(group)->broadcast(
        {.number = 0,
         .memory = std::shared_ptr<std::byte>(std::shared_ptr<void>(), slot.data()),
         .bytes = slot.size(),
         .from = from,
         .piece_bytes = kHostPiece,
         .written = [written] { return written; },
         .enqueued = {},
         .done = [done](absl::Status status, std::uint64_t) { done->set_value(std::move(status)); }});
    return done->get_future();
  }
  Publication publication(Version version) const {
    return {.version = version, .slot = {1, 0}, .bytes = slot.size(), .digest = {}};
  }
  std::future<absl::Status> receive(std::uint64_t number, CommGroupId group, absl::Duration timeout = patience()) {
    return std::async(std::launch::async, [this, number, group, timeout] {
      const GroupMessage message{.kind = Kind::kDeliver, .group = group, .number = number, .from = 0};
      return receiver->receive(publication(number), to_bytes(message), Deadline(timeout));
    });
  }
  // The bytes that the engine would read.
  void expect_whole(Version version) {
    const absl::StatusOr<SlotView> view = receiver->prepare(publication(version), Deadline(patience()));
    ASSERT_THAT(view, IsOk());
    EXPECT_TRUE(std::ranges::equal(view->bytes, slot));
    kernels::ThreadPool pool(1);
    EXPECT_EQ(view->digest, kernels::digest(slot, pool));
    receiver->end_read(view->slot);
  }
  void wait_for_broadcasts(int count) const {
    const Deadline deadline(patience());
    while (fake.broadcasts() < count && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(fake.broadcasts(), count);
  }
  static void wait_for_no_communicator() {
    const Deadline deadline(patience());
    while (Communicator::alive() > 0 && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(Communicator::alive(), 0);
  }
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  FakeNccl& fake = FakeNccl::instance();
  const std::shared_ptr<HostPlace> place = std::make_shared<HostPlace>();
  const std::shared_ptr<Line> line = std::make_shared<Line>();
  std::vector<std::byte> slot;
  std::optional<Receiver> receiver;
  std::map<CommGroupId, std::unique_ptr<Communicator>> planner_;
};

TEST_F(NcclReceiver, ReceivesVersionsInOneGroup) {
  attach();
  join(1);
  for (Version version : {1, 2, 3}) {
    slot.assign(kBytes, static_cast<std::byte>(version));
    auto received = receive(version, 1);
    EXPECT_THAT(broadcast(1).get(), IsOk());
    EXPECT_THAT(received.get(), IsOk());
    EXPECT_EQ(line->next(Kind::kGot).number, version);
    expect_whole(version);
  }
}

TEST_F(NcclReceiver, AModelWithoutBytesComes) {
  attach(0);
  join(1);
  auto received = receive(1, 1);
  EXPECT_THAT(received.get(), IsOk());
  EXPECT_EQ(line->next(Kind::kGot).number, 1u);
  expect_whole(1);
}

TEST_F(NcclReceiver, AVersionGoesOnInAnotherGroup) {
  attach();
  join(1);
  join(2);
  auto received = receive(1, 1);
  auto sent = broadcast(1, 0, 2 * kHostPiece);
  wait_for_broadcasts(2);
  rest();
  tell({.kind = Kind::kDrop, .group = 1});
  const GroupMessage dropped = line->next(Kind::kDropped);
  EXPECT_EQ(dropped.number, 1u);
  EXPECT_LE(dropped.from, 2 * kHostPiece);
  leave(1);
  const std::uint64_t from = std::min(dropped.from, kHostPiece);
  tell({.kind = Kind::kAgain, .group = 2, .number = 1, .from = from});
  EXPECT_THAT(broadcast(2, from).get(), IsOk());
  EXPECT_THAT(received.get(), IsOk());
  expect_whole(1);
}

// If another worker has less, pieces come twice: later pieces are missing until they have come again.
TEST_F(NcclReceiver, WhatIsWrittenAgainDoesNotCountAsThere) {
  attach();
  join(1);
  join(2);
  auto received = receive(1, 1);
  auto sent = broadcast(1, 0, 3 * kHostPiece);
  wait_for_broadcasts(3);
  rest();
  tell({.kind = Kind::kDrop, .group = 1});
  EXPECT_LE(line->next(Kind::kDropped).from, 3 * kHostPiece);
  leave(1);
  tell({.kind = Kind::kAgain, .group = 2, .number = 1, .from = 0});
  auto again = broadcast(2, 0, kHostPiece);
  wait_for_broadcasts(4);
  rest();
  tell({.kind = Kind::kDrop, .group = 2});
  EXPECT_LE(line->next(Kind::kDropped).from, kHostPiece);
  leave(2);
  tell({.kind = Kind::kOver, .number = 1});
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  EXPECT_TRUE(line->silent());
}

// receive() has a separate thread, which may be late.
TEST_F(NcclReceiver, MessagesOfADeliveryMayComeBeforeItsReceiveBegins) {
  attach();
  join(1);
  join(2);
  tell({.kind = Kind::kDrop, .group = 1});
  EXPECT_EQ(line->next(Kind::kDropped).number, 0u);
  leave(1);
  tell({.kind = Kind::kOver, .number = 1});
  tell({.kind = Kind::kAgain, .group = 2, .number = 2, .from = 0});
  EXPECT_THAT(receive(1, 1).get(), StatusIs(StatusCode::kCancelled, HasSubstr("gave the version up")));
  auto received = receive(2, 1);
  EXPECT_THAT(broadcast(2).get(), IsOk());
  EXPECT_THAT(received.get(), IsOk());
  EXPECT_EQ(line->next(Kind::kGot).number, 2u);
  expect_whole(2);
}

// Otherwise the sender would wait, in the next group, for a worker that has everything.
TEST_F(NcclReceiver, SaysGotBeforeDropped) {
  attach();
  CommGroupId group = 0;
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t number = ++group;
    join(group);
    auto received = receive(number, group);
    const auto sent = broadcast(group);
    wait_for_broadcasts(5 * (i + 1));
    tell({.kind = Kind::kDrop, .group = group});
    bool got = false;
    GroupMessage message = line->next();
    for (; message.kind != Kind::kDropped; message = line->next()) got |= message.kind == Kind::kGot;
    EXPECT_TRUE(got || message.from < kBytes) << "in round " << i;
    leave(group);
    if (!got) tell({.kind = Kind::kOver, .number = number});
    EXPECT_EQ(received.get().ok(), got);
    EXPECT_TRUE(got || line->silent());
  }
}

TEST_F(NcclReceiver, RefusesAVersionForWhichItHasNoRoomAndLeavesTheGroup) {
  attach();
  join(1);
  std::vector<SlotView> read;
  std::uint64_t number = 0;
  for (int i = 0; i < 2; ++i) {  // both buffers are read
    auto received = receive(++number, 1);
    EXPECT_THAT(broadcast(1).get(), IsOk());
    EXPECT_THAT(received.get(), IsOk());
    line->next(Kind::kGot);
    read.push_back(*receiver->prepare(publication(number), Deadline(patience())));
  }
  place->refuse_memory(true);
  EXPECT_THAT(receive(++number, 1).get(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("no memory")));
  const GroupMessage failed = line->next(Kind::kFailed);
  EXPECT_EQ(failed.number, number);
  EXPECT_EQ(failed.group, 1u);
  EXPECT_THAT(failed.why, HasSubstr("no memory"));
  EXPECT_EQ(line->next(Kind::kDropped).group, 1u) << "the next broadcast of it would be taken for this one";
  receiver->end_read(read.front().slot);
  auto next = receive(++number, 1);
  rest();
  tell({.kind = Kind::kOver, .number = number});
  EXPECT_FALSE(next.get().ok());
}

TEST_F(NcclReceiver, RefusesAVersionThatComesTooLate) {
  attach();
  join(1);
  auto received = receive(1, 1, absl::Milliseconds(30));
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("only 0 of")));
  EXPECT_EQ(line->next(Kind::kFailed).number, 1u);
  EXPECT_EQ(line->next(Kind::kDropped).group, 1u);
}

TEST_F(NcclReceiver, RefusesAVersionThatGoesOnWhereItHasNotCome) {
  attach();
  join(1);
  auto received = receive(1, 2);  // a group that it never joined
  tell({.kind = Kind::kAgain, .group = 1, .number = 1, .from = kHostPiece});
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("found 131072")));
  EXPECT_EQ(line->next(Kind::kFailed).number, 1u);
}

TEST_F(NcclReceiver, ALostConnectionEndsWhatComes) {
  attach();
  join(1);
  auto received = receive(1, 1);
  rest();
  receiver->close();
  EXPECT_THAT(received.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("lost")));
  leave(1);
  wait_for_no_communicator();
  rest();
  EXPECT_TRUE(line->silent());
  receiver->open(line);
  join(2);
  auto again = receive(1, 2);
  EXPECT_THAT(broadcast(2).get(), IsOk());
  EXPECT_THAT(again.get(), IsOk());
  expect_whole(1);
}

TEST_F(NcclReceiver, SurvivesMessagesOfNobody) {
  attach();
  receiver->heard("no message", {});
  for (int kind = 0; kind <= static_cast<int>(Kind::kFailed); ++kind) {
    if (static_cast<Kind>(kind) == Kind::kMake) continue;
    tell({.kind = static_cast<Kind>(kind), .group = 77, .number = 9, .from = ~0ULL});
  }
  for (std::uint64_t number = 100; number < 1000; ++number) tell({.kind = Kind::kOver, .number = number});
  EXPECT_EQ(line->next(Kind::kReady).group, 77u);
  EXPECT_EQ(line->next(Kind::kDropped).group, 77u);
  EXPECT_TRUE(line->silent());
  join(1);
}

// In a child process whose memory limit leaves no room for a thread's stack.
TEST_F(NcclReceiver, SaysSoWhereNoThreadCanBeStarted) {
  if (test::kSlowdown > 1) GTEST_SKIP() << "sanitizers need the address space";
  const auto join_without_room = [this] {
    attach();
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * 4096 + (2u << 20);
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    if (::setrlimit(RLIMIT_AS, &limits) != 0) std::_Exit(5);
    tell({.kind = Kind::kMake, .group = 1, .rank = 1, .ranks = 2, .id = {}});
    const bool failed = line->next().kind == Kind::kFailed, dropped = line->next().kind == Kind::kDropped;
    std::_Exit(failed && dropped ? 3 : 4);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // otherwise it has the stacks of earlier threads
  EXPECT_EXIT(join_without_room(), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace bascule::inline v0::nccl
