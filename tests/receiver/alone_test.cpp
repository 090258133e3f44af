// An engine without a sender, and versions that a scheme keeps, when reading them fails or takes long: memmap's files,
// read by a receiver whose digests the test spoils.
#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <gmock/gmock.h>

#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::patience;

// Faults of digests, on any thread.
struct Faults {
  std::mutex mutex;
  std::condition_variable_any changed;
  int failing = 0;       // how many will fail, as a disk may once
  bool hanging = false;  // the next ones take forever, as with large cold files; they stop when told
  int hung = 0;          // how many have hung

  void set_hanging(bool hang) {
    const std::lock_guard lock(mutex);
    hanging = hang;
    changed.notify_all();
  }
  bool wait_until_one_hangs() {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, Deadline(patience()).at(), [this] { return hung > 0; });
  }
  absl::Status strike(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    if (failing > 0) return --failing, errno_status(EIO, "read a file");
    if (!hanging) return absl::OkStatus();
    ++hung;
    changed.notify_all();
    return changed.wait(lock, stop, [this] { return !hanging; }) ? absl::OkStatus() : absl::CancelledError("stopped");
  }
};

class SlowDisk final : public ReceiverTransport, public KeptVersions {
 public:
  SlowDisk(std::unique_ptr<ReceiverTransport> files, Faults& faults) : files_(std::move(files)), faults_(faults) {}

  absl::Status accept(ReceivedOffer offer) override { return files_->accept(std::move(offer)); }
  std::optional<SlotView> find(SlotId slot) const override { return files_->find(slot); }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    return files_->prepare(publication, deadline);
  }
  void end_read(SlotId slot) override { files_->end_read(slot); }
  void unmap(SlotId slot) override { files_->unmap(slot); }
  KeptVersions* kept_versions() override { return this; }

  absl::StatusOr<std::vector<FoundVersion>> find_versions(Version newer_than) override {
    return files_->kept_versions()->find_versions(newer_than);
  }
  absl::StatusOr<Digest> digest_of(FoundVersion& found, kernels::ThreadPool& pool,
                                   const std::stop_token& stop) override {
    BASCULE_TRY(faults_.strike(stop));
    return files_->kept_versions()->digest_of(found, pool, stop);
  }
  absl::Status bring_in(const FoundVersion& found, const std::stop_token& stop) override {
    return files_->kept_versions()->bring_in(found, stop);
  }

 private:
  const std::unique_ptr<ReceiverTransport> files_;
  Faults& faults_;
};

class Alone : public testing::Test {
 protected:
  // A version that is kept, without a sender.
  Alone() {
    EXPECT_THAT(listen().send(), IsOk());
    sender_.reset();
  }
  ~Alone() override { faults_.set_hanging(false); }  // or the receiver would not end

  Sender& listen() {
    auto made = Sender::listen({.endpoint = endpoint()});
    EXPECT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    EXPECT_THAT(sender_->register_model(host_tensors({{{"w", DType::kF32, {64, 1024}}, weights_.data()}})), IsOk());
    return *sender_;
  }
  void connect() {
    auto made = Receiver::connect({.endpoint = endpoint(), .worker = "a", .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
    receiver_->commit();  // it begins to look
  }
  void begin_a_digest_that_does_not_end() {
    faults_.set_hanging(true);
    connect();
    ASSERT_TRUE(faults_.wait_until_one_hangs());
  }
  void flip_to(Version version) {
    Flip flip = receiver_->commit();
    for (const Deadline deadline(patience()); flip.version != version && !deadline.passed(); flip = receiver_->commit())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(flip.version, version);
  }
  std::string endpoint() const {
    return cat("memmap://", folder_.path().string(), "/run?suspect_after=60s&timeout=60s");
  }

  const test::TempFolder folder_;
  std::vector<float> weights_ = std::vector<float>(64 * 1024, 1.0F);
  Faults faults_;
  const Scheme scheme_ = [this] {
    Scheme scheme = *find_scheme("memmap").value();
    scheme.make_receiver = [this, files = scheme.make_receiver](const Endpoint& endpoint) {
      return std::make_unique<SlowDisk>(files(endpoint), faults_);
    };
    return scheme;
  }();
  std::optional<Sender> sender_;
  std::optional<Receiver> receiver_;
};

TEST_F(Alone, ASenderThatComesDoesNotWaitForADigest) {
  begin_a_digest_that_does_not_end();
  listen();
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  weights_[0] = 2.0F;
  ASSERT_THAT(sender_->send_async(), IsOk());
  flip_to(2);
  const auto report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
}

TEST_F(Alone, AReceiverEndsInTheMiddleOfADigest) {
  begin_a_digest_that_does_not_end();
  auto ended = std::async(std::launch::async, [this] { receiver_.reset(); });
  EXPECT_EQ(ended.wait_for(absl::ToChronoMilliseconds(patience())), std::future_status::ready);
  faults_.set_hanging(false);
}

// A digest that a sender cut short does not make the version wrong.
TEST_F(Alone, WhatWasCutShortIsServedOnceTheSenderIsGone) {
  begin_a_digest_that_does_not_end();
  listen();
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  faults_.set_hanging(false);
  sender_.reset();
  ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
  flip_to(1);
}

// The sender was stopped, and many have tried to reach it since.
TEST_F(Alone, AFullQueueOfASenderThatStandsStillIsNoSender) {
  const std::filesystem::path place = folder_.path() / "run" / "control.sock";
  std::filesystem::remove(place);
  using Protocol = boost::asio::local::stream_protocol;
  boost::asio::io_context io;
  Protocol::acceptor still(io);
  still.open();
  still.bind(place.string());
  still.listen(0);
  std::vector<Protocol::socket> queue;
  boost::system::error_code full;
  while (!full) {
    queue.emplace_back(io).open();
    queue.back().non_blocking(true);
    queue.back().connect(place.string(), full);
  }
  connect();
  ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
  flip_to(1);
}

TEST_F(Alone, AVersionThatCouldNotBeReadIsTriedAgain) {
  faults_.failing = 2;
  connect();
  ASSERT_THAT(receiver_->wait_ready(patience()), IsOk());
  flip_to(1);
  EXPECT_EQ(faults_.failing, 0);
}

}  // namespace
}  // namespace bascule
