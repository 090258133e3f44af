// How an engine learns that commit() has work: by a descriptor that an event loop waits for, or by asking.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/epoll.h>

#include <thread>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

class PendingFd : public testing::Test {
 protected:
  void SetUp() override {
    const std::string endpoint = cat("shm://", (folder_.path() / "e").string());
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint, .threads = 1});
    ASSERT_THAT(sender, IsOk());
    sender_.emplace(*std::move(sender));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
    absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint, .worker = "a"});
    ASSERT_THAT(receiver, IsOk());
    receiver_.emplace(*std::move(receiver));
    receiver_->join();
    ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  }
  // Whether it becomes readable in that time.
  static bool rings(int descriptor, absl::Duration time = patience()) {
    pollfd readable{.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(time))) > 0;
  }
  void begin() {
    model_.step(++generation_);
    ASSERT_THAT(sender_->send_async(), IsOk());
  }
  void finish() { EXPECT_THAT(sender_->wait_async(patience()), IsOk()); }

  TempFolder folder_;
  TestModel model_;
  std::uint64_t generation_ = 0;
  std::optional<Sender> sender_;
  std::optional<Receiver> receiver_;
};

// SetUp() has seen that a sender counts a worker that only joined.
TEST_F(PendingFd, BehindJoinNoTargetsAreTaken) {
  std::vector<float> memory(4);
  const absl::Status refused = receiver_->register_model(
      {{.name = "a", .dtype = DType::kF32, .shape = {4}, .data = reinterpret_cast<std::byte*>(memory.data())}});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("register before join()"), std::string_view::npos) << refused;
}

TEST_F(PendingFd, IsReadableWhenAVersionWaits) {
  const absl::StatusOr<int> descriptor = receiver_->pending_fd();
  ASSERT_THAT(descriptor, IsOk());
  EXPECT_EQ(*receiver_->pending_fd(), *descriptor) << "there is one";
  for (Version version = 1; version <= 3; ++version) {
    begin();
    ASSERT_TRUE(rings(*descriptor));
    while (!receiver_->commit().changed) ASSERT_TRUE(rings(*descriptor));
    finish();
    EXPECT_EQ(receiver_->status().version, version);
    EXPECT_FALSE(receiver_->commit().changed);  // the bell may have rung after the flip
    EXPECT_FALSE(rings(*descriptor, absl::Milliseconds(5))) << "each commit() drains it";
  }
}

// An edge-triggered loop is woken once per edge: it must find the version then.
TEST_F(PendingFd, WakesAnEdgeTriggeredLoopOnceItCanCommit) {
  const absl::StatusOr<int> descriptor = receiver_->pending_fd();
  ASSERT_THAT(descriptor, IsOk());
  const UniqueFd loop(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(::epoll_ctl(loop.get(), EPOLL_CTL_ADD, *descriptor, &wanted), 0);
  constexpr Version kVersions = 300;
  std::thread engine([&] {
    Version served = 0;
    for (epoll_event event{}; served < kVersions && ::epoll_wait(loop.get(), &event, 1, 20'000) == 1;)
      if (const Flip flip = receiver_->commit(); flip.changed) served = flip.version;
    EXPECT_EQ(served, kVersions);
  });
  for (Version version = 1; version <= kVersions; ++version) {
    model_.step(++generation_);
    const absl::StatusOr<SendReport> report = sender_->send();
    EXPECT_TRUE(report.ok() && report->complete()) << version;
    if (HasFailure()) break;
  }
  engine.join();
}

TEST_F(PendingFd, AReceiverSaysWhetherAVersionWaitsAndFlipsToNone) {
  EXPECT_FALSE(receiver_->pending());
  begin();
  for (const Deadline deadline(patience()); !receiver_->pending() && !deadline.passed();) std::this_thread::yield();
  EXPECT_TRUE(receiver_->pending());
  EXPECT_EQ(receiver_->status().version, 0U);
  EXPECT_TRUE(receiver_->pending()) << "until commit()";
  EXPECT_TRUE(receiver_->commit().changed);
  EXPECT_FALSE(receiver_->pending());
  finish();
}

TEST_F(PendingFd, AskedForLateItTellsOfWhatWaitsAlready) {
  begin();
  ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
  const absl::StatusOr<int> descriptor = receiver_->pending_fd();
  ASSERT_THAT(descriptor, IsOk());
  EXPECT_TRUE(rings(*descriptor));
  EXPECT_TRUE(receiver_->take().changed);
  receiver_->finish();
  finish();
}

}  // namespace
}  // namespace bascule::test
