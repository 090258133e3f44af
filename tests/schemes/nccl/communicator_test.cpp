// One rank and its thread, on the fake of NCCL: every call under way ends, whatever NCCL does.
#include <bascule/schemes/nccl/communicator.h>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "schemes/nccl/stuck_place.h"
#include "support/schemes/host_place.h"
#include "support/status.h"
#include "support/timing.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::FakeNccl;
using test::HostPlace;
using test::IsOk;
using test::patience;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kPiece = 64, kBytes = 5 * kPiece + 7;

// The reports of one rank's handlers, and its memory.
class End {
 public:
  End(FakeNccl& fake, const UniqueId& id, int rank, int ranks, std::shared_ptr<Place> elsewhere = nullptr) {
    memory = std::shared_ptr<std::byte>(new std::byte[kBytes](), std::default_delete<std::byte[]>());
    std::fill_n(memory.get(), kBytes, static_cast<std::byte>(rank == 0 ? 7 : 0));
    communicator.emplace(fake.library(), elsewhere ? std::move(elsewhere) : place,
                         Rank{.group = 1, .rank = rank, .ranks = ranks, .id = id}, Communicator::Options{},
                         Communicator::Handlers{.made = [log = log_](absl::Status status) { log->add("made", status); },
                                                .ended = [log = log_] { log->add("ended", absl::OkStatus()); }});
  }
  void send(std::uint64_t from = 0, std::function<std::uint64_t()> written = {},
            std::function<absl::Status(Stream, std::uint64_t, std::uint64_t)> enqueued = {}) {
    communicator->broadcast({.number = 1,
                             .memory = memory,
                             .bytes = kBytes,
                             .from = from,
                             .piece_bytes = kPiece,
                             .written = std::move(written),
                             .enqueued = std::move(enqueued),
                             .done = [log = log_](absl::Status status, std::uint64_t there) {
                               log->there = there;
                               log->add("done", status);
                             }});
  }
  // The next message of its thread.
  absl::Status next(std::string_view what) const { return log_->next(what); }
  bool silent() const { return log_->silent(); }
  std::uint64_t there() const { return log_->there; }
  bool is_whole() const {
    return std::all_of(memory.get(), memory.get() + kBytes, [](std::byte byte) { return byte == std::byte{7}; });
  }
  void leave() {
    communicator->abort();
    EXPECT_THAT(next("ended"), IsOk());
  }

  std::shared_ptr<HostPlace> place = std::make_shared<HostPlace>();
  std::shared_ptr<std::byte> memory;
  std::optional<Communicator> communicator;

 private:
  struct Log {
    void add(std::string what, absl::Status status) {
      const std::lock_guard lock(mutex);
      said.emplace_back(std::move(what), std::move(status));
      changed.notify_all();
    }
    absl::Status next(std::string_view what) {
      std::unique_lock lock(mutex);
      if (!changed.wait_until(lock, Deadline(patience()).at(), [this] { return !said.empty(); }))
        return absl::UnknownError("it says nothing");
      auto [message, status] = std::move(said.front());
      said.pop_front();
      EXPECT_EQ(message, what) << status;
      return status;
    }
    bool silent() {
      const std::lock_guard lock(mutex);
      return said.empty();
    }
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<std::string, absl::Status>> said;
    std::atomic<std::uint64_t> there = 0;
  };
  const std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

class NcclCommunicator : public testing::Test {
 protected:
  NcclCommunicator() { fake.renew(); }
  ~NcclCommunicator() override {
    EXPECT_THAT(fake.misuse_texts(), IsEmpty());
    fake.free_aborts();
    const Deadline deadline(patience());
    while (Communicator::alive() > 0 && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(Communicator::alive(), 0);
    EXPECT_EQ(fake.live_comms(), 0);
    fake.renew();
  }
  UniqueId draw() {
    UniqueId id;
    EXPECT_EQ(fake.library().get_unique_id(&id), Code::kSuccess);
    return id;
  }
  std::deque<End> join(int ranks) {
    const UniqueId id = draw();
    std::deque<End> ends;
    for (int rank = 0; rank < ranks; ++rank) ends.emplace_back(fake, id, rank, ranks);
    return ends;
  }
  std::deque<End> made(int ranks) {
    std::deque<End> ends = join(ranks);
    for (End& end : ends) EXPECT_THAT(end.next("made"), IsOk());
    return ends;
  }
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  FakeNccl& fake = FakeNccl::instance();
};

TEST_F(NcclCommunicator, JoinsSlowlyAndSendsPiecesInOrder) {
  fake.slow_init(std::chrono::milliseconds(30));
  std::deque<End> ends = made(3);
  std::vector<std::uint64_t> begun;
  for (End& end : ends)
    end.send(0, {}, &end == &ends[1] ? [&begun](Stream, std::uint64_t begin, std::uint64_t end_of_it) {
      EXPECT_LE(end_of_it - begin, kPiece);
      begun.push_back(begin);
      return absl::OkStatus();
    } : std::function<absl::Status(Stream, std::uint64_t, std::uint64_t)>());
  for (End& end : ends) {
    EXPECT_THAT(end.next("done"), IsOk());
    EXPECT_EQ(end.there(), kBytes);
    EXPECT_TRUE(end.is_whole());
  }
  EXPECT_THAT(begun, ElementsAre(0, kPiece, 2 * kPiece, 3 * kPiece, 4 * kPiece, 5 * kPiece));
  EXPECT_EQ(fake.broadcasts(), 6);
  for (End& end : ends) end.leave();
}

TEST_F(NcclCommunicator, GoesOnFromThePieceThatItIsTold) {
  std::deque<End> ends = made(2);
  for (End& end : ends) end.send(2 * kPiece);
  for (End& end : ends) EXPECT_THAT(end.next("done"), IsOk());
  EXPECT_EQ(ends[1].memory.get()[2 * kPiece - 1], std::byte{0});
  EXPECT_EQ(ends[1].memory.get()[2 * kPiece], std::byte{7});
  for (End& end : ends) end.send(kBytes);  // nothing is left
  for (End& end : ends) EXPECT_THAT(end.next("done"), IsOk());
  for (End& end : ends) end.leave();
}

TEST_F(NcclCommunicator, NoPieceOvertakesTheWriter) {
  std::deque<End> ends = made(2);
  std::atomic<std::uint64_t> written = 0;
  ends[1].send();
  ends[0].send(0, [&] { return written.load(); });
  for (std::uint64_t bytes : {std::uint64_t{0}, kPiece - 1, kPiece, 3 * kPiece + 5, kBytes - 1}) {
    written = bytes;
    const Deadline deadline(patience());
    const int whole = static_cast<int>(bytes / kPiece);
    while (fake.broadcasts() < whole && !deadline.passed()) std::this_thread::yield();
    rest();
    EXPECT_EQ(fake.broadcasts(), whole);
  }
  written = kBytes;
  for (End& end : ends) EXPECT_THAT(end.next("done"), IsOk());
  for (End& end : ends) end.leave();
}

TEST_F(NcclCommunicator, ManyBroadcastsComeInTheirOrder) {
  std::deque<End> ends = made(3);
  for (int i = 0; i < 20; ++i)
    for (End& end : ends) end.send();
  for (int i = 0; i < 20; ++i)
    for (End& end : ends) EXPECT_THAT(end.next("done"), IsOk());
  EXPECT_EQ(fake.broadcasts(), 120);
  for (End& end : ends) end.leave();
}

TEST_F(NcclCommunicator, AnInitThatFailsSaysSoAndEndsWhenItIsLeft) {
  fake.fail_init(1);
  End alone(fake, draw(), 0, 2);
  EXPECT_THAT(alone.next("made"), StatusIs(StatusCode::kUnavailable, HasSubstr("join: unhandled system error")));
  alone.send();
  EXPECT_THAT(alone.next("done"), StatusIs(StatusCode::kUnavailable, HasSubstr("join")));
  rest();
  EXPECT_TRUE(alone.silent()) << "no rank has left it";
  alone.leave();
}

TEST_F(NcclCommunicator, AnInitThatNobodyElseComesToIsLeft) {
  const int before = Communicator::abandoned();
  End alone(fake, draw(), 0, 2);
  rest();
  EXPECT_TRUE(alone.silent());
  alone.communicator->abort();
  EXPECT_THAT(alone.next("made"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
  EXPECT_THAT(alone.next("ended"), IsOk());
  EXPECT_EQ(Communicator::abandoned(), before + 1) << "NCCL keeps a thread of it";
}

TEST_F(NcclCommunicator, OnlyRank0sInitsCountAsAbandoned) {
  const int before = Communicator::abandoned();
  End alone(fake, draw(), 1, 2);
  alone.communicator->abort();
  EXPECT_THAT(alone.next("made"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
  EXPECT_THAT(alone.next("ended"), IsOk());
  EXPECT_EQ(Communicator::abandoned(), before);
}

TEST_F(NcclCommunicator, AStalledRankHoldsTheOthersUntilTheyLeave) {
  std::deque<End> ends = made(3);
  fake.stall(ends[2].place->streams().front());
  for (End& end : ends) end.send();
  rest();
  for (const End& end : ends) EXPECT_TRUE(end.silent());
  for (End& end : ends) {
    end.communicator->abort();
    EXPECT_THAT(end.next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
    EXPECT_THAT(end.next("ended"), IsOk());
    EXPECT_EQ(end.there(), 0u);
  }
}

// The kernels on the stream may write until the abort has returned.
TEST_F(NcclCommunicator, HoldsTheMemoryOfABroadcastThatFailedUntilItHasEnded) {
  std::deque<End> ends = made(2);
  fake.stall(ends[0].place->streams().front());
  ends[0].send();
  ends[1].send();
  rest();
  const std::weak_ptr<std::byte> memory = ends[1].memory;
  ends[1].memory.reset();
  fake.hang_abort(1);
  ends[1].communicator->abort();
  EXPECT_FALSE(ends[1].next("done").ok());
  ASSERT_TRUE(fake.wait_for_hung_aborts(1, Deadline(patience())));
  EXPECT_FALSE(memory.expired());
  fake.free_aborts();
  EXPECT_THAT(ends[1].next("ended"), IsOk());
  ends[0].communicator->abort();
  EXPECT_FALSE(ends[0].next("done").ok());
  EXPECT_THAT(ends[0].next("ended"), IsOk());
  const Deadline deadline(patience());
  while (!memory.expired() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(memory.expired());
}

TEST_F(NcclCommunicator, IsAbortedWhileItsThreadIsStuckInACallOfTheDevice) {
  const UniqueId id = draw();
  const auto place = std::make_shared<StuckPlace>();
  End root(fake, id, 0, 2, place), other(fake, id, 1, 2);
  for (const End* end : {&root, &other}) EXPECT_THAT(end->next("made"), IsOk());
  fake.stall(other.place->streams().front());
  root.send();
  other.send();
  const Deadline deadline(patience());
  while (!place->is_stuck() && !deadline.passed()) std::this_thread::yield();
  root.communicator->abort();
  EXPECT_THAT(root.next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
  EXPECT_EQ(root.there(), 0u) << "the abort ended pieces that did not come";
  EXPECT_THAT(root.next("ended"), IsOk());
  other.communicator->abort();
  EXPECT_FALSE(other.next("done").ok());
  EXPECT_THAT(other.next("ended"), IsOk());
}

TEST_F(NcclCommunicator, LeftInTheMiddleItSaysHowMuchIsThere) {
  std::deque<End> ends = made(2);
  std::atomic<std::uint64_t> written = 2 * kPiece;
  ends[1].send();
  ends[0].send(0, [&] { return written.load(); });
  const Deadline deadline(patience());
  while (fake.broadcasts() < 2 && !deadline.passed()) std::this_thread::yield();
  rest();
  for (End& end : ends) {
    end.communicator->abort();
    EXPECT_THAT(end.next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
    EXPECT_THAT(end.next("ended"), IsOk());
    EXPECT_LE(end.there(), 2 * kPiece);
    EXPECT_EQ(end.there() % kPiece, 0u);
    EXPECT_EQ(std::count(end.memory.get(), end.memory.get() + end.there(), std::byte{7}),
              static_cast<std::ptrdiff_t>(end.there()));
  }
}

TEST_F(NcclCommunicator, ErrorsNowAndLaterEndTheBroadcastAndAllBehindIt) {
  for (const bool late : {false, true}) {
    std::deque<End> ends = made(2);
    late ? fake.fail_broadcast_late(1) : fake.fail_broadcast(1);
    for (int i = 0; i < 2; ++i) ends[0].send();
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT(ends[0].next("done"), StatusIs(StatusCode::kUnavailable,
                                                 HasSubstr(late ? "broadcast: remote process exited" : "broadcast")));
    for (End& end : ends) end.leave();
  }
}

TEST_F(NcclCommunicator, WhatIsEnqueuedBehindAPieceMayFail) {
  std::deque<End> ends = made(2);
  ends[0].send();
  ends[1].send(0, {}, [](Stream, std::uint64_t, std::uint64_t) { return absl::InternalError("no digest"); });
  EXPECT_THAT(ends[1].next("done"), StatusIs(StatusCode::kInternal, HasSubstr("no digest")));
  ends[1].leave();
  ends[0].communicator->abort();
  EXPECT_FALSE(ends[0].next("done").ok());
  EXPECT_THAT(ends[0].next("ended"), IsOk());
}

TEST_F(NcclCommunicator, AnAbortThatHangsHarmsNoOther) {
  std::deque<End> ends = made(2), others = made(2);
  fake.hang_abort(1);
  ends[0].communicator->abort();
  ASSERT_TRUE(fake.wait_for_hung_aborts(1, Deadline(patience())));
  rest();
  EXPECT_TRUE(ends[0].silent());
  for (End& other : others) other.send();
  for (End& other : others) EXPECT_THAT(other.next("done"), IsOk());
  for (End& other : others) other.leave();
  ends[1].leave();
  fake.free_aborts();
  EXPECT_THAT(ends[0].next("ended"), IsOk());
}

TEST_F(NcclCommunicator, WhatIsWantedOfOneThatIsLeftIsDoneAtOnceAlsoWhileTheAbortHangs) {
  std::deque<End> ends = made(2);
  fake.hang_abort(1);
  ends[0].communicator->abort();
  ASSERT_TRUE(fake.wait_for_hung_aborts(1, Deadline(patience())));
  ends[0].send();
  EXPECT_THAT(ends[0].next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
  fake.free_aborts();
  EXPECT_THAT(ends[0].next("ended"), IsOk());
  ends[0].send();
  EXPECT_THAT(ends[0].next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
  ends[1].leave();
}

TEST_F(NcclCommunicator, OneThatIsDestroyedGoesByItself) {
  std::deque<End> ends = made(2);
  for (End& end : ends) end.send(0, [] { return std::uint64_t{0}; });  // called only at rank 0
  for (End& end : ends) {
    end.communicator.reset();
    EXPECT_THAT(end.next("done"), StatusIs(StatusCode::kCancelled, HasSubstr("left")));
    EXPECT_THAT(end.next("ended"), IsOk());
  }
}

}  // namespace
}  // namespace bascule::inline v0::nccl
