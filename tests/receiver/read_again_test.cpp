// A version that came with wrong bytes: the worker reads the wrong tiles again, from the sender's slot. The bytes are
// spoilt on their way to the worker's device or, in a relay, to its receive buffer.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/devices/fake_device.h"
#include "support/schemes/host_relay.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kTile = kernels::kTileBytes;
const std::vector<TensorSpec> kSpecs = {{"w", DType::kU8, {8, kTile}}, {"b", DType::kU8, {100}}};

class ReadAgain : public testing::Test {
 protected:
  void SetUp() override { FakeDevice::instance().renew(); }

  void listen(const std::string& scheme, const Scheme* own = nullptr) {
    endpoint_ = cat(scheme, "://", (folder_.path() / "endpoint").string());
    absl::StatusOr<Sender> sender =
        Sender::listen({.endpoint = endpoint_, .threads = 2, .expect_workers = {0}, .scheme = own});
    ASSERT_THAT(sender, IsOk());
    sender_.emplace(*std::move(sender));
    ASSERT_THAT(sender_->register_model(host_tensors({{kSpecs[0], w_.data()}, {kSpecs[1], b_.data()}})), IsOk());
  }
  Receiver join(const std::string& worker, int device, const Scheme* scheme = nullptr,
                std::vector<TargetTensor> targets = {}, Apply apply = Apply::kBackground) {
    absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint_,
                                                           .worker = worker,
                                                           .device = device,
                                                           .log = [this](std::string_view line) { note(line); },
                                                           .scheme = scheme});
    EXPECT_THAT(receiver, IsOk());
    if (!targets.empty()) {
      EXPECT_THAT(receiver->register_model(std::move(targets), {.apply = apply}), IsOk());
    }
    receiver->join();
    return *std::move(receiver);
  }
  void note(std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_ += cat(line, "\n");
  }
  std::string lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Sends another version to all workers, which commit meanwhile.
  absl::StatusOr<SendReport> send(std::span<Receiver> receivers) {
    ++step_;
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = static_cast<std::byte>(i / 77 * 5 + i + step_);
    for (std::size_t i = 0; i < b_.size(); ++i) b_[i] = static_cast<std::byte>(i + step_);
    BASCULE_TRY(sender_->send_async());
    std::atomic<bool> over = false;
    std::thread commits([&] {
      while (!over) {
        for (Receiver& receiver : receivers) static_cast<void>(receiver.commit());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    absl::StatusOr<SendReport> report = sender_->wait_async();
    over = true;
    commits.join();
    return report;
  }
  void expect_served(Receiver& receiver) {
    const Flip flip = receiver.commit();
    ASSERT_EQ(flip.version, step_);
    for (const auto& [name, bytes] : {std::pair{"w", &w_}, std::pair{"b", &b_}}) {
      const TensorView* const tensor = receiver.weights(flip.slot).find(name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_TRUE(std::equal(bytes->begin(), bytes->end(), tensor->data)) << name;
    }
  }
  // One byte of each of the next copies into a receive buffer of a relay, as many as `spoils` says.
  static HostQueueHooks spoiling(std::atomic<int>& spoils, std::byte bit) {
    return {.after_copy = [&spoils, bit](std::span<std::byte> piece) {
      if (spoils > 0) --spoils, piece[piece.size() / 2] ^= bit;
    }};
  }

  const TempFolder folder_;
  std::string endpoint_;
  std::vector<std::byte> w_ = std::vector<std::byte>(8 * kTile), b_ = std::vector<std::byte>(100);
  Version step_ = 0;
  std::mutex mutex_;
  std::string lines_;
  std::optional<Sender> sender_;
};

constexpr std::uint64_t kWhole = 8 * kTile + 100;

TEST_F(ReadAgain, OneWrongByteOfACopyToADeviceCostsOneTile) {
  listen("shm");
  std::vector<Receiver> receivers;
  receivers.push_back(join("w", 0));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  for (const bool spoilt : {false, true, true, false}) {
    FakeDevice::instance().spoil_copies(spoilt ? 1 : 0);
    const auto report = send(receivers);
    ASSERT_THAT(report, IsOk());
    ASSERT_EQ(report->workers.size(), 1U);
    EXPECT_EQ(report->workers[0].bytes, (BytesRead{.read = kWhole + (spoilt ? kTile : 0), .verified = kWhole}));
    expect_served(receivers[0]);
  }
  const std::string place = "arrived wrong in bytes [262144, 327680), where tensor w lies, and 0 bytes after them. ";
  EXPECT_THAT(lines(), AllOf(HasSubstr("version 2 " + place + "Read again, it is right"),
                             HasSubstr("version 3 " + place + "Read again, it is right")));
  EXPECT_THAT(lines(), AllOf(Not(HasSubstr("version 1 arrived")), Not(HasSubstr("version 4 arrived"))));
}

class ReadAgainForCopies : public ReadAgain, public testing::WithParamInterface<Apply> {};

TEST_P(ReadAgainForCopies, TheTargetsGetRightBytes) {
  listen("shm");
  std::vector<std::byte> w(w_.size()), b(b_.size());
  std::vector<Receiver> receivers;
  receivers.push_back(
      join("w", 0, nullptr,
           {{.name = "w", .dtype = DType::kU8, .shape = kSpecs[0].shape, .data = w.data(), .device = 0},
            {.name = "b", .dtype = DType::kU8, .shape = kSpecs[1].shape, .data = b.data(), .device = 0}},
           GetParam()));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  for (int version = 0; version < 3; ++version) {
    FakeDevice::instance().spoil_copies(1);
    ASSERT_THAT(send(receivers), IsOk());
    expect_served(receivers[0]);
  }
}
INSTANTIATE_TEST_SUITE_P(Applied, ReadAgainForCopies, testing::Values(Apply::kCommit, Apply::kBackground));

TEST_F(ReadAgain, BytesThatComeWrongAgainAreRefusedAndNamed) {
  listen("shm");
  std::vector<Receiver> receivers;
  receivers.push_back(join("w", 0));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  ASSERT_THAT(send(receivers), IsOk());
  FakeDevice::instance().spoil_copies(1 << 20);
  EXPECT_THAT(send(receivers), StatusIs(absl::StatusCode::kAborted,
                                        AllOf(HasSubstr("worker w could not prepare "),
                                              HasSubstr("wrong are bytes [262144, 327680), where tensor w lies"))));
  EXPECT_THAT(lines(), HasSubstr("Read again, it is still wrong"));
  EXPECT_EQ(receivers[0].commit().version, 1U);
}

// The second engine copies from the first one; what comes wrong it reads again from the trainer.
TEST_F(ReadAgain, AnEngineOfARelayReadsWrongTilesFromTheTrainer) {
  std::atomic<int> first = 0, second = 0;
  const Scheme sends = host_relay_scheme({}), to_first = host_relay_scheme(spoiling(first, std::byte{8})),
               to_second = host_relay_scheme(spoiling(second, std::byte{4}));
  listen("host-relay", &sends);
  std::vector<Receiver> receivers;
  receivers.push_back(join("first", kHost, &to_first));
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  receivers.push_back(join("second", kHost, &to_second));
  ASSERT_THAT(sender_->wait_for_workers(2, patience()), IsOk());
  for (const auto& [at_first, at_second] : {std::pair{0, 0}, {0, 1}, {0, 3}, {1, 0}, {1, 2}}) {
    SCOPED_TRACE(cat(at_first, " wrong pieces at the first engine, ", at_second, " at the second"));
    first = at_first;
    second = at_second;
    const auto report = send(receivers);
    ASSERT_THAT(report, IsOk());
    ASSERT_EQ(report->workers.size(), 2U);
    for (Receiver& receiver : receivers) expect_served(receiver);
    for (const WorkerReport& worker : report->workers) {
      EXPECT_THAT(worker.error, IsOk());
      const std::uint64_t own = static_cast<std::uint64_t>(worker.worker == "first" ? at_first : at_second);
      const std::uint64_t least = kWhole + own * kTile;
      EXPECT_GE(worker.bytes->read, least);
      EXPECT_LE(worker.bytes->read, kWhole + static_cast<std::uint64_t>(at_first + at_second) * kTile);
    }
  }
}

}  // namespace
}  // namespace bascule::test
