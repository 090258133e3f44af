// A device that is late: memory that it may still read is neither unmapped nor given back, whatever happens meanwhile.
#include "receiver/device_wire.h"  // first: see there

#include <algorithm>
#include <atomic>
#include <future>

#include "support/test_model.h"
#include <bascule/sender/sender.h>

namespace bascule {
namespace {

using test::kEpoch;

const std::string kHasty = cat("flip_timeout=", 200 * test::kSlowdown, "ms");

class LateStream : public test::DeviceWire {
 protected:
  bool all(const std::vector<std::byte>& bytes, unsigned char value) const {
    return std::ranges::count(bytes, std::byte{value}) == kBytes;
  }
};

TEST_F(LateStream, KeepsTheSlotThatACopyAtAFlipStillReads) {
  join(kHasty, Apply::kCommit);
  come_back();
  device_.hold(stream_);
  publish(1, 0);
  const Flip late = flip();
  EXPECT_TRUE(late.poisoned);
  EXPECT_FALSE(late.changed);
  EXPECT_FALSE(sender_.expect<Poisoned>().final);

  const Hello hello = come_back();  // evicted, it is back
  EXPECT_EQ(hello.serving, 0u);
  ASSERT_EQ(hello.held.size(), 1u);
  EXPECT_EQ(hello.held[0].slot, (SlotId{kEpoch, 0}));
  prepare(2, 1, {1, 2});  // slot 0 is taken out of use
  device_.pass(stream_);
  EXPECT_EQ(sender_.expect<Released>().slot, (SlotId{kEpoch, 0})) << "and only then it is ready for one more";
  EXPECT_TRUE(all(tensors_, 0x10)) << "it came too late to count";
  seal(2, 1);
  EXPECT_EQ(sender_.expect<Prepared>().version, 2u);
  sender_.say(Decided{.version = 2});
  mend();
  EXPECT_TRUE(all(tensors_, 0x20));
}

// It is evicted, and sends continue; meanwhile it holds one slot.
TEST_F(LateStream, HoldsUpNoSendWhileItsCopyIsLate) {
  const test::TempFolder folder;
  const std::string endpoint =
      cat("shm://", folder.path().string(), "?flip_timeout=", absl::ToInt64Milliseconds(test::silence()), "ms");
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint});
  ASSERT_THAT(sender, test::IsOk());
  test::TestModel model(test::ModelSize::kTiny);
  model.step(1);
  ASSERT_THAT(sender->register_model(model.source()), test::IsOk());
  std::vector<std::vector<std::byte>> memory;
  std::vector<TargetTensor> targets;
  for (const TensorSpec& spec : model.specs()) {
    memory.emplace_back(byte_count(spec.dtype, spec.shape));
    targets.push_back(
        {.name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .data = memory.back().data(), .device = 0});
  }
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint, .worker = "late", .stream = stream_, .scheme = &scheme_});
  ASSERT_THAT(receiver, test::IsOk());
  ASSERT_THAT(receiver->register_model(targets, {.apply = Apply::kCommit}), test::IsOk());
  std::atomic<bool> done = false;
  std::atomic<Version> served = 0;
  std::thread engine([&] {
    while (!done) {
      served = receiver->commit().version;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  EXPECT_THAT(sender->wait_for_workers(1, test::patience()), test::IsOk());
  EXPECT_THAT(sender->send(), test::IsOk());
  device_.hold(stream_);
  const absl::StatusOr<SendReport> evicted = sender->send();
  EXPECT_THAT(evicted, test::IsOk());
  EXPECT_FALSE(evicted->complete());
  for (int i = 0; i < 6; ++i) EXPECT_THAT(sender->send(), test::IsOk()) << "send " << i;
  model.step(2);
  EXPECT_THAT(sender->send(), test::IsOk());
  device_.pass(stream_);
  for (const Deadline deadline(test::patience()); served < 9 && !deadline.passed();) std::this_thread::yield();
  done = true;
  engine.join();
  EXPECT_EQ(served, 9u);
  const std::span<const TensorView> found = receiver->weights({0, 0}).tensors();
  std::vector<TensorView> tensors(found.begin(), found.end());
  for (TensorView& tensor : tensors) tensor.device = kHost;  // as it is
  const absl::StatusOr<std::uint64_t> generation = test::generation_of(tensors, test::ModelSize::kTiny);
  ASSERT_THAT(generation, test::IsOk());
  EXPECT_EQ(*generation, 2u);
}

// The device is busy with other work: it digests long after the worker has given the version up.
TEST_F(LateStream, KeepsTheSlotThatItIsToDigest) {
  join("digest=always&timeout=200ms");
  come_back();
  device_.hold_own();
  prepare(1, 0, {0, 1, 2});
  seal(1, 0);
  ASSERT_TRUE(device_.wait_for_timeouts(1, Deadline(test::patience())));
  sender_.say(Abort{.version = 1, .torn = false});
  prepare(2, 1, {1, 2});  // slot 0 is taken out of use
  seal(2, 1);
  ASSERT_TRUE(device_.wait_for_timeouts(2, Deadline(test::patience())));
  device_.pass_own();
  EXPECT_EQ(sender_.expect<Released>().lease, 1u);
}

TEST_F(LateStream, KeepsWhatItReadsInTheSlotsOfASenderThatIsGone) {
  join();
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({kEpoch, 0});
  come_back(kEpoch + 1);
  publish(2, 1, {0, 1, 2}, kEpoch + 1);
  flip_to(2);
  device_.pass(stream_);
  EXPECT_TRUE(all(read_, 0x10));
  EXPECT_EQ(sender_.expect<Released>().slot, (SlotId{kEpoch, 0}));
}

// ---- the receiver ends ----

TEST_F(LateStream, IsWaitedForByTheDestructor) {
  join("flip_timeout=60s");
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({kEpoch, 0});
  auto ended = std::async(std::launch::async, [&] { receiver_.reset(); });
  sender_.expect<Bye>();
  EXPECT_TRUE(device_.wait_for_waits(1, Deadline(test::patience())));
  EXPECT_FALSE(lease_ended());
  device_.pass(stream_);
  ended.get();
  EXPECT_TRUE(all(read_, 0x10));
  EXPECT_TRUE(lease_ended());
}

TEST_F(LateStream, KeepsWhatItReadsBeyondTheDestructorsDeadline) {
  join(kHasty);
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({kEpoch, 0});
  receiver_.reset();
  EXPECT_FALSE(lease_ended());
  device_.pass(stream_);
  EXPECT_TRUE(all(read_, 0x10));
}

TEST_F(LateStream, KeepsTheSlotThatACommitHadLeftBeyondTheDestructorsDeadline) {
  join(kHasty);
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({kEpoch, 0});
  publish(2, 1);
  flip_to(2);
  receiver_.reset();
  device_.pass(stream_);
  EXPECT_TRUE(all(read_, 0x10));
}

TEST_F(LateStream, KeepsTheSecondSetOfTensorsBeyondTheDestructorsDeadline) {
  join(kHasty, Apply::kBackground);
  come_back();
  publish(1, 0);
  const Flip now = flip();
  EXPECT_EQ(now.version, 1u);
  device_.hold(stream_);
  read(now.slot);
  receiver_.reset();
  device_.pass(stream_);
  EXPECT_TRUE(all(read_, 0x10));
}

// A version waits for the set of tensors that the stream still reads.
TEST_F(LateStream, KeepsNoDestructorWaitingForTheNextVersion) {
  join("flip_timeout=200ms&timeout=1h", Apply::kBackground);
  come_back();
  device_.hold(stream_);
  publish(1, 0);
  EXPECT_EQ(flip().version, 1u);
  for (int heard = 0; heard < 2;)  // ack and released, in any order
    heard += std::holds_alternative<Heartbeat>(sender_.next()) ? 0 : 1;
  prepare(2, 1, {0, 1, 2});
  seal(2, 1);
  ASSERT_TRUE(device_.wait_for_timeouts(1, Deadline(test::patience())));
  auto ended = std::async(std::launch::async, [&] { receiver_.reset(); });
  EXPECT_EQ(ended.wait_for(absl::ToChronoMilliseconds(test::patience())), std::future_status::ready);
  device_.pass(stream_);
}

TEST_F(LateStream, KeepsTheSlotOfALateCopyBeyondTheDestructorsDeadline) {
  join(kHasty, Apply::kCommit);
  come_back();
  device_.hold(stream_);
  publish(1, 0);
  EXPECT_TRUE(flip().poisoned);
  receiver_.reset();
  EXPECT_FALSE(lease_ended());
  device_.pass(stream_);
  EXPECT_TRUE(all(tensors_, 0x10));
}

// A lost device reads nothing.
TEST_F(LateStream, OfALostDeviceIsNotWaitedFor) {
  join("flip_timeout=1h");
  come_back();
  publish(1, 0);
  flip_to(1);
  device_.hold(stream_);
  read({kEpoch, 0});
  device_.lose();
  receiver_.reset();
  EXPECT_TRUE(lease_ended());
}

}  // namespace
}  // namespace bascule
