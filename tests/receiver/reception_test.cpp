// A scheme whose bytes arrive in receive(); the test is the sender.
#include "receiver/wire_sender.h"  // first: see there

#include <gmock/gmock.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "receiver/attached.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;

struct Order {
  std::mutex mutex;
  std::condition_variable changed;
  bool sealed = false, received = false, prepared = false;
  absl::Status result;        // of receive()
  bool lacks_memory = false;  // accept() throws, once
  absl::Status shortage;      // of prepare()
};

class Receives final : public ReceiverTransport, public Reception {
 public:
  Receives(Order& order, const SlotMemory& memory) : order_(order), memory_(memory) {}
  absl::Status accept(ReceivedOffer) override {
    const std::lock_guard lock(order_.mutex);
    if (std::exchange(order_.lacks_memory, false)) throw std::bad_alloc();
    return absl::OkStatus();
  }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline) override {
    const std::lock_guard lock(order_.mutex);
    order_.prepared = true;
    order_.changed.notify_all();
    if (!order_.shortage.ok()) return order_.shortage;
    if (!order_.received) return failed_precondition("prepare() came before receive() had returned");
    return SlotView{.slot = {publication.slot.epoch, kOwnMemory},
                    .bytes = memory_.mapping.bytes().first(publication.bytes)};
  }
  void end_read(SlotId) override {}
  void unmap(SlotId) override {}
  Reception* reception() override { return this; }

  void open(std::shared_ptr<SenderLine>) override {}
  void heard(std::string, std::vector<UniqueFd>) override {}
  void close() override {}
  // Its bytes come a while after `sealed`: long enough for a prepare() that does not wait for them.
  absl::Status receive(const Publication&, std::string, Deadline deadline) override {
    std::unique_lock lock(order_.mutex);
    order_.changed.wait_until(lock, deadline.at(), [&] { return order_.sealed; });
    order_.changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return order_.prepared; });
    order_.received = true;
    return order_.result;
  }

 private:
  Order& order_;
  const SlotMemory& memory_;
};

class ReceptionTest : public testing::Test {
 protected:
  void send_version() {
    join();
    prepare(std::nullopt);
    EXPECT_EQ(sender_.expect<Ready>().version, 1);
    sender_.say(Deliver{.version = 1, .bytes = "bytes"});
    seal();
  }
  void join() {
    receiver_.emplace(Receiver::connect({.endpoint = "moves://" + folder_.path().string() + "?suspect_after=60s",
                                         .worker = "a",
                                         .trace =
                                             [this](std::string_view line) {
                                               if (line != "from sender: sealed") return;
                                               const std::lock_guard lock(order_.mutex);
                                               order_.sealed = true;
                                               order_.changed.notify_all();
                                             },
                                         .scheme = &scheme_})
                          .value());
    EXPECT_FALSE(receiver_->commit().changed);  // it begins to look for a sender
    sender_.greeted(false);
    welcome();
  }
  void welcome() {
    Welcome welcome = memory_.welcome();
    welcome.offer = "moves";
    sender_.say(welcome, {memory_.page.descriptor(), lease_.get()});
  }
  void prepare(std::optional<std::string> offer) {
    sender_.say(Prepare{.version = 1,
                        .slot = {test::kEpoch, 0},
                        .lease = 1,
                        .bytes = memory_.layout.bytes(),
                        .offer = std::move(offer),
                        .slots = {0, 1}});
  }
  void seal() {
    memory_.page.seal(0, 1, memory_.layout.bytes(), std::nullopt);
    sender_.say(Sealed{.version = 1, .digest = std::nullopt});
  }

  const test::TempFolder folder_;
  Order order_;
  test::SenderMemory memory_ = test::SenderMemory::make({{"w", DType::kF32, {4}}});
  const UniqueFd lease_{::dup(memory_.page.descriptor())};
  const Scheme scheme_{.name = "moves", .make_sender = {}, .make_receiver = [this](const Endpoint&) {
                         return std::make_unique<Receives>(order_, memory_.slots.front());
                       }};
  test::WireSender sender_{folder_.path()};
  std::optional<Receiver> receiver_;
};

TEST_F(ReceptionTest, PrepareFollowsReceive) {
  send_version();
  EXPECT_EQ(sender_.expect<Prepared>().version, 1);
  sender_.say(Decided{.version = 1});
  ASSERT_THAT(receiver_->wait_ready(test::patience()), IsOk());
  EXPECT_TRUE(receiver_->commit().changed);
}

TEST_F(ReceptionTest, NoPrepareFollowsAReceiveThatFailed) {
  order_.result = unavailable("the bytes were lost");
  send_version();
  EXPECT_THAT(sender_.expect<Failed>().why, testing::HasSubstr("the bytes were lost"));
  receiver_.reset();
  EXPECT_FALSE(order_.prepared);
}

// `failed` would abort the version for all workers.
TEST_F(ReceptionTest, WithoutDescriptorsToPrepareAVersionOnlyItsConnectionEnds) {
  order_.shortage = errno_status(EMFILE, "open a slot's file");
  send_version();
  EXPECT_THAT(sender_.expect<Bye>().why,
              testing::HasSubstr("prepare version 1: open a slot's file: Too many open files"));
  {
    const std::lock_guard lock(order_.mutex);
    order_.shortage = absl::OkStatus();
  }
  sender_.greeted();
  welcome();
  prepare(std::nullopt);
  EXPECT_EQ(sender_.expect<Ready>().version, 1);
  sender_.say(Deliver{.version = 1, .bytes = "bytes"});
  seal();
  EXPECT_EQ(sender_.expect<Prepared>().version, 1);
}

TEST_F(ReceptionTest, WithoutMemoryToTakeInAnOfferOnlyItsConnectionEnds) {
  join();
  prepare(std::nullopt);
  EXPECT_EQ(sender_.expect<Ready>().version, 1);  // the welcome's offer is taken in
  sender_.say(Abort{.version = 1});
  EXPECT_EQ(sender_.expect<Released>().lease, 1u);
  {
    const std::lock_guard lock(order_.mutex);
    order_.lacks_memory = true;
  }
  prepare("another slot");
  EXPECT_EQ(sender_.expect<Ready>().version, 1);
  sender_.expect<Bye>();  // stands for its end: no `failed` comes before
  EXPECT_TRUE(sender_.hung_up());
  sender_.greeted();
  welcome();
  prepare("another slot");
  EXPECT_EQ(sender_.expect<Ready>().version, 1);
}

}  // namespace
}  // namespace bascule
