// A worker whose process has lost its device, seen from the wire: it reports that once, lets go, and stays away.
#include "receiver/device_wire.h"  // first: see there

#include <atomic>
#include <thread>

#include "support/test_model.h"
#include <bascule/receiver/copier.h>
#include <bascule/sender/sender.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::FakeDevice;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class LostDevice : public test::DeviceWire {
 protected:
  // The end of every test: what it reports, and its state afterwards.
  void expect_the_end() {
    Message said = sender_.next();
    while (std::holds_alternative<Heartbeat>(said) || std::holds_alternative<Ack>(said)) said = sender_.next();
    ASSERT_TRUE(std::holds_alternative<Poisoned>(said)) << "found " << name_of(said);
    EXPECT_TRUE(std::get<Poisoned>(said).final);
    EXPECT_THAT(std::get<Poisoned>(said).why, HasSubstr("device is lost"));
    sender_.say(Refused{.why = "poisoned", .final = false});
    wait_until_lease_ended();
    const ReceiverStatus status = receiver_->status();
    EXPECT_EQ(status.state, ReceiverState::kPoisoned);
    EXPECT_FALSE(status.attached);
    EXPECT_THAT(receiver_->wait_ready(test::patience()),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("device is lost")));
    const Flip flip = receiver_->commit();
    EXPECT_TRUE(flip.poisoned);
    EXPECT_FALSE(flip.changed);
  }
};

TEST_F(LostDevice, AtAFlipInPlaceIsNoFlip) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);
  device_.lose();
  const Flip failed = flip();
  EXPECT_TRUE(failed.poisoned);
  EXPECT_FALSE(failed.changed);
  EXPECT_EQ(failed.version, 1u);
  expect_the_end();
}

TEST_F(LostDevice, AtTheCopyOfAFlip) {
  join("", Apply::kCommit);
  come_back();
  publish(1, 0);
  flip_to(1);
  EXPECT_EQ(sender_.expect<Released>().lease, 1u);
  publish(2, 1);
  device_.lose();
  const Flip failed = flip();
  EXPECT_TRUE(failed.poisoned);
  EXPECT_FALSE(failed.changed);
  expect_the_end();
}

// `failed` would abort the version for all workers.
TEST_F(LostDevice, WhileAVersionIsPreparedFailsItForNobodyElse) {
  join("digest=always", Apply::kCommit);
  come_back();
  publish(1, 0);
  flip_to(1);
  EXPECT_EQ(sender_.expect<Released>().lease, 1u);
  device_.lose();
  prepare(2, 1, {0, 1, 2});
  seal(2, 1);
  expect_the_end();
}

TEST_F(LostDevice, BehindAFlipWhileItsStreamIsLate) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({test::kEpoch, 0});
  publish(2, 1);
  flip_to(2);
  device_.lose();
  expect_the_end();
}

TEST_F(LostDevice, BeforeTheSendersMemoryIsReached) {
  device_.lose();
  auto made = Receiver::connect({.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=60s"),
                                 .worker = "a",
                                 .device = 0});  // copies of slots in host memory
  ASSERT_THAT(made, IsOk());
  receiver_.emplace(*std::move(made));
  EXPECT_FALSE(receiver_->commit().changed);
  come_back();
  expect_the_end();
}

// Its sender is gone when it notices: there is no one to tell, and it looks for no sender.
TEST_F(LostDevice, WithoutASender) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);
  EXPECT_FALSE(lease_ended());
  sender_.hang_up();
  device_.lose();
  EXPECT_TRUE(flip().poisoned);
  wait_until_lease_ended();
}

// Nothing is lost: the version that it serves stays, and the next one cures it.
TEST_F(LostDevice, IsNotAStreamThatCannotBeMarked) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  publish(2, 1);
  device_.refuse_mark();
  const Flip failed = flip();
  EXPECT_TRUE(failed.poisoned);
  EXPECT_FALSE(failed.changed);
  EXPECT_EQ(failed.version, 1u);
  bool says_why = false, gives_back = false;  // its threads report in either order
  while (!says_why || !gives_back) {
    const Message said = sender_.next();
    if (const auto* const poisoned = std::get_if<Poisoned>(&said)) {
      EXPECT_FALSE(poisoned->final);
      says_why = true;
    } else if (const auto* const released = std::get_if<Released>(&said)) {
      EXPECT_EQ(released->lease, 2u);
      gives_back = true;
    } else {
      ASSERT_TRUE(std::holds_alternative<Heartbeat>(said)) << "found " << name_of(said);
    }
  }
  const Hello hello = come_back();
  EXPECT_EQ(hello.serving, 1u);
  ASSERT_EQ(hello.held.size(), 1u) << "and it still reads its slot";
  EXPECT_EQ(hello.held[0].slot, (SlotId{test::kEpoch, 0}));
  publish(3, 1);
  EXPECT_EQ(mend().version, 3u);
}

// It holds the slots that it read, and sends to the others continue.
TEST(LostDeviceAmongOthers, KeepsNobodyFromAVersion) {
  FakeDevice& device = FakeDevice::instance();
  device.renew();
  const test::TempFolder folder;
  const Scheme on_device = test::on_fake_device(*find_scheme("shm").value());
  const std::string endpoint = cat("shm://", folder.path().string());
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint});
  ASSERT_THAT(sender, IsOk());
  test::TestModel model(test::ModelSize::kTiny);
  model.step(1);
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  std::atomic<bool> done = false;
  std::atomic<Version> served = 0;  // by the one that is lost
  std::vector<std::thread> engines;
  for (const bool is_lost : {true, false})
    engines.emplace_back([&, is_lost] {
      absl::StatusOr<Receiver> receiver = Receiver::connect(
          {.endpoint = endpoint, .worker = is_lost ? "lost" : "other", .scheme = is_lost ? &on_device : nullptr});
      ASSERT_THAT(receiver, IsOk());
      while (!done) {
        const Flip flip = receiver->commit();
        if (is_lost && flip.changed) served = flip.version;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  EXPECT_THAT(sender->wait_for_workers(2, test::patience()), IsOk());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(sender->send(), IsOk());
  for (const Deadline deadline(test::patience()); served < 2 && !deadline.passed();) std::this_thread::yield();
  EXPECT_EQ(served, 2u);
  device.lose();
  for (int i = 0; i < 8; ++i) {
    const absl::StatusOr<SendReport> report = sender->send();
    ASSERT_THAT(report, IsOk()) << "send " << i;
    for (const WorkerReport& worker : report->workers) {
      EXPECT_EQ(worker.state, worker.worker == "other" ? WorkerState::kServing : WorkerState::kEvicted);
      EXPECT_TRUE(worker.worker == "other" || i == 0) << "it is back in send " << i;
    }
  }
  EXPECT_EQ(served, 2u);
  done = true;
  for (std::thread& engine : engines) engine.join();
  device.renew();
}

TEST(CopierOnADevice, TakesAnEmptyTargetWhereverItIsSaidToLie) {
  FakeDevice::instance().renew();
  std::vector<std::byte> bytes(16);
  const TargetTensor filled{.name = "a", .dtype = DType::kU8, .shape = {16}, .data = bytes.data(), .device = 0};
  const TargetTensor empty{.name = "none", .dtype = DType::kU8, .shape = {0, 4}, .data = nullptr, .device = kHost};
  for (const std::vector<TargetTensor>& targets :
       {std::vector<TargetTensor>{filled, empty}, std::vector<TargetTensor>{empty, filled}}) {
    const auto copier = Copier::make(targets, {}, Apply::kBackground, 1);
    ASSERT_THAT(copier, IsOk());
    EXPECT_EQ((*copier)->device(), 0);
    EXPECT_EQ((*copier)->weights(0)->find("none")->device, 0);
  }
  const TargetTensor host{.name = "b", .dtype = DType::kU8, .shape = {16}, .data = bytes.data(), .device = kHost};
  EXPECT_THAT(Copier::make({filled, empty, host}, {}, Apply::kCommit, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("target a lies in")));
}

}  // namespace
}  // namespace bascule
