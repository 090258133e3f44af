// Both ends of nccl, connected directly: deliveries are wanted and given up while the slot is still written.
#include <bascule/schemes/nccl/sender.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "support/schemes/host_place.h"
#include "support/status.h"
#include "support/timing.h"
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/receiver.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/task_thread.h>

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

constexpr std::uint64_t kSentBytes = 4 * kHostPiece + 100;

struct Worker {
  std::optional<Receiver> receiver;
  std::optional<TaskThread> receives{std::in_place};
  std::mutex mutex;
  std::map<Version, absl::Status> received;
};

// Both ends share one I/O thread.
class NcclSender : public testing::Test, public WorkerLine {
 protected:
  NcclSender() {
    fake.renew();
    const Dependencies dependencies = dependencies_of(std::make_shared<HostPlace>());
    transport = *nccl::Sender::make(dependencies, endpoint);
    memory = *make_memfd("slot", kSentBytes);
    // The first slot finds the place.
    slot_ = transport->make_slot({1, 0}, Layout(), kHost).value();
    std::ranges::fill(memory.mapping.writable(), std::byte{7});
    transport->delivery()->open(*this);
  }
  ~NcclSender() override {
    transport->delivery()->close();
    io.stop();
    for (Worker& worker : workers) {
      worker.receiver->close();
      worker.receives.reset();
      worker.receiver.reset();
    }
    transport.reset();
    const Deadline deadline(patience());
    while (Communicator::alive() > 0 && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(Communicator::alive(), 0);
    EXPECT_EQ(fake.live_comms(), 0);
    EXPECT_EQ(fake.live_threads(), 0);
    EXPECT_THAT(fake.misuse_texts(), IsEmpty());
    fake.renew();
  }
  Dependencies dependencies_of(std::shared_ptr<HostPlace> place) {
    return {.library = [this] { return &fake.library(); },
            .place = [place = std::move(place)](int) { return place; },
            .piece_bytes = kHostPiece};
  }

  // ---- the wire ----

  struct Back final : SenderLine {
    Back(NcclSender& to, WorkerId from) : test(to), worker(from) {}
    void say(std::string bytes, std::vector<ProcessFd>) override {
      test.io.submit([this, bytes = std::move(bytes)] { test.transport->delivery()->heard(worker, bytes, {}); });
    }
    NcclSender& test;
    const WorkerId worker;
  };
  void deliver(WorkerId id, Version version, std::string bytes) override {
    io.submit([this, id, version, bytes = std::move(bytes)] {
      Worker& worker = of(id);
      worker.receives->submit([&worker, version, bytes] {
        absl::Status status = worker.receiver->receive(
            {.version = version, .slot = {1, 0}, .bytes = kSentBytes, .digest = {}}, bytes, Deadline(patience()));
        const std::lock_guard lock(worker.mutex);
        worker.received[version] = std::move(status);
      });
    });
  }
  void say(WorkerId id, std::string bytes, std::vector<ProcessFd>) override {
    io.submit([this, id, bytes = std::move(bytes)] { of(id).receiver->heard(bytes, {}); });
  }
  void give_up(WorkerId worker, absl::Status why) override { ADD_FAILURE() << "gave up " << worker << ": " << why; }
  void log(std::string line) override { ADD_FAILURE() << line; }
  void post(std::function<void()> work) override { io.submit(std::move(work)); }

  Worker& of(WorkerId id) { return *std::next(workers.begin(), static_cast<std::ptrdiff_t>(id) - 1); }
  void join() {
    const WorkerId id = workers.size() + 1;
    Worker& worker = workers.emplace_back();
    worker.receiver.emplace(dependencies_of(std::make_shared<HostPlace>()), endpoint);
    std::promise<absl::Status> accepted;
    io.submit([&] {  // no message comes before its line is open
      const Offer offer = transport->offer(id, ConnectionKind::kTcp, {}).value();
      absl::Status status =
          worker.receiver->accept({.bytes = offer.bytes, .descriptors = {}, .slots = {}, .slot_bytes = kSentBytes});
      worker.receiver->open(std::make_shared<Back>(*this, id));
      accepted.set_value(std::move(status));
    });
    ASSERT_THAT(accepted.get_future().get(), IsOk());
  }
  std::future<absl::Status> want(Version version) {
    std::vector<WorkerId> ids;
    for (WorkerId id = 1; id <= workers.size(); ++id) ids.push_back(id);
    auto done = std::make_shared<std::promise<absl::Status>>();
    io.submit([this, version, ids, done] {
      transport->delivery()->deliver(
          {.number = version,
           .publication = {.version = version, .slot = {1, 0}, .bytes = kSentBytes, .digest = {}},
           .workers = ids,
           .memory = &memory,
           .bytes_done = &written},
          [done](absl::Status status) { done->set_value(std::move(status)); });
    });
    return done->get_future();
  }
  void stop(Version version) {
    io.submit([this, version] { transport->delivery()->stop(version); });
  }
  void expect_received(Version version) {
    for (Worker& worker : workers) {
      const absl::StatusOr<SlotView> view = worker.receiver->prepare(
          {.version = version, .slot = {1, 0}, .bytes = kSentBytes, .digest = {}}, Deadline(patience()));
      ASSERT_THAT(view, IsOk());
      EXPECT_TRUE(std::ranges::equal(view->bytes, memory.mapping.bytes().first(kSentBytes)));
      worker.receiver->end_read(view->slot);
    }
  }
  void wait_for_broadcasts(int count) const {
    const Deadline deadline(patience());
    while (fake.broadcasts() < count && !deadline.passed()) std::this_thread::yield();
    EXPECT_GE(fake.broadcasts(), count);
  }

  FakeNccl& fake = FakeNccl::instance();
  const Endpoint endpoint{};
  TaskThread io;
  std::list<Worker> workers;
  SlotMemory memory;
  std::atomic<std::uint64_t> written = kSentBytes;
  std::unique_ptr<SenderTransport> transport;

 private:
  SlotMemory slot_;
};

TEST_F(NcclSender, DeliversWhatIsWrittenMeanwhile) {
  join();
  join();
  written = 0;
  auto done = want(1);
  for (const std::uint64_t bytes : {kHostPiece, 3 * kHostPiece, kSentBytes}) {
    written = bytes;
    wait_for_broadcasts(static_cast<int>(bytes / kHostPiece));
  }
  EXPECT_THAT(done.get(), IsOk());
  expect_received(1);
}

TEST_F(NcclSender, WhatIsGivenUpWhileItIsWrittenRunsOutAndTheCommunicatorStays) {
  join();
  join();
  EXPECT_THAT(want(1).get(), IsOk());
  expect_received(1);
  const int ids = fake.ids();
  for (Version version = 2; version < 12; ++version) {
    written = kHostPiece;
    const int broadcasts = fake.broadcasts();
    auto done = want(version);
    wait_for_broadcasts(broadcasts + 1);
    stop(version);
    EXPECT_THAT(done.get(), StatusIs(StatusCode::kAborted, HasSubstr("given up")));
    EXPECT_GE(fake.broadcasts(), broadcasts + 5);
    written = kSentBytes;
    ++version;
    EXPECT_THAT(want(version).get(), IsOk());
    expect_received(version);
  }
  EXPECT_LE(fake.ids(), ids + 1) << "but for the group of all";
}

TEST_F(NcclSender, OneThatIsGivenUpAndWholeIsNotWaitedFor) {
  join();
  written = 0;
  auto done = want(1);  // the slot is not written
  for (const Deadline deadline(patience()); fake.live_comms() < 2 && !deadline.passed();) std::this_thread::yield();
  written = kSentBytes - 1;
  wait_for_broadcasts(4);
  stop(1);
  EXPECT_THAT(done.get(), StatusIs(StatusCode::kAborted, HasSubstr("given up")));
  written = kSentBytes;
  EXPECT_THAT(want(2).get(), IsOk());
  expect_received(2);
}

TEST_F(NcclSender, EndsInTheMiddleOfADelivery) {
  join();
  written = kHostPiece;
  const auto done = want(1);
  wait_for_broadcasts(1);
}

}  // namespace
}  // namespace bascule::inline v0::nccl
