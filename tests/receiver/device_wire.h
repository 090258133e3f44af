// A worker that reads on the fake device, and the test as its sender: the device reads slots in place, or copies them
// to the engine's own tensors.
#pragma once

#include "receiver/wire_sender.h"  // first: see there

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "receiver/attached.h"
#include "support/devices/fake_device.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::test {

class DeviceWire : public testing::Test {
 protected:
  DeviceWire() {
    device_.renew();
    for (std::uint32_t slot = 0; slot < 3; ++slot) fill(slot, static_cast<unsigned char>(0x10 * (slot + 1)));
  }

  void TearDown() override { device_.renew(); }  // or the receiver would wait for it

  // In place, or with `apply` into tensors_.
  void join(std::string_view options = "", std::optional<Apply> apply = {}) {
    auto made = Receiver::connect(
        {.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=60s", options.empty() ? "" : "&", options),
         .worker = "a",
         .stream = stream_,
         .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    if (apply) {
      const TargetTensor target{
          .name = "w", .dtype = DType::kU8, .shape = {kBytes}, .data = tensors_.data(), .device = 0};
      ASSERT_THAT(made->register_model({target}, {.apply = apply}), IsOk());
    }
    receiver_.emplace(*std::move(made));
    EXPECT_FALSE(receiver_->commit().changed);
  }
  // Welcomes as `epoch`, with the same slots.
  void welcome(Epoch epoch = kEpoch) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd theirs(ends[1]);
    pipe_ = UniqueFd(ends[0]);
    Welcome welcome = memory_.welcome();
    welcome.epoch = epoch;
    std::vector<int> descriptors;
    for (const SlotMemory& slot : memory_.slots) descriptors.push_back(slot.descriptor.get());
    descriptors.push_back((epoch == kEpoch ? memory_.page : other_page_).descriptor());
    descriptors.push_back(theirs.get());
    sender_.say(welcome, descriptors);
  }
  Hello come_back(Epoch epoch = kEpoch) {
    Hello hello = sender_.greeted();
    welcome(epoch);
    return hello;
  }
  void prepare(Version version, std::uint32_t slot, std::vector<std::uint32_t> slots, Epoch epoch = kEpoch) {
    sender_.say(Prepare{.version = version,
                        .slot = {epoch, slot},
                        .lease = version,
                        .bytes = memory_.layout.bytes(),
                        .offer = std::nullopt,
                        .slots = std::move(slots)});
  }
  void seal(Version version, std::uint32_t slot, Epoch epoch = kEpoch) {
    EXPECT_EQ(sender_.expect<Ready>().version, version);
    const Digest digest = digest_of(slot);
    (epoch == kEpoch ? memory_.page : other_page_).seal(slot, version, memory_.layout.bytes(), digest);
    sender_.say(Sealed{.version = version, .digest = digest});
  }
  // Sends everything up to `decided`; the sender has all `slots`.
  void publish(Version version, std::uint32_t slot, std::vector<std::uint32_t> slots = {0, 1, 2},
               Epoch epoch = kEpoch) {
    prepare(version, slot, std::move(slots), epoch);
    seal(version, slot, epoch);
    EXPECT_EQ(sender_.expect<Prepared>().version, version);
    sender_.say(Decided{.version = version});
  }
  // Calls commit() until it has something to do.
  Flip flip() {
    Flip flip;
    for (const Deadline deadline(patience()); !flip.changed && !flip.poisoned && !deadline.passed();
         flip = receiver_->commit())
      std::this_thread::yield();
    return flip;
  }
  void flip_to(Version version) {
    const Flip now = flip();
    EXPECT_TRUE(now.changed) << receiver_->status().error;
    EXPECT_EQ(now.version, version);
    EXPECT_EQ(sender_.expect<Ack>().version, version);
  }
  // The same for a worker that is poisoned until then.
  Flip mend() {
    Flip flip;
    for (const Deadline deadline(patience()); !flip.changed && !deadline.passed(); flip = receiver_->commit())
      std::this_thread::yield();
    EXPECT_FALSE(flip.poisoned);
    EXPECT_EQ(sender_.expect<Ack>().version, flip.version);
    EXPECT_EQ(receiver_->status().state, ReceiverState::kServing);
    return flip;
  }

  void fill(std::uint32_t slot, unsigned char value) {
    const std::span<std::byte> bytes = memory_.slots[slot].writable();
    std::memset(bytes.data(), value, bytes.size());
  }
  Digest digest_of(std::uint32_t slot) {
    kernels::ThreadPool pool(1);
    return kernels::digest(memory_.slots[slot].writable().first(memory_.layout.bytes()), pool);
  }
  // The engine's stream reads the served version; read_ is the result, once the stream has done it.
  void read(SlotId slot) {
    const std::byte* const from = receiver_->weights(slot).find("w")->data;
    device_.give(stream_, [this, from] { std::memcpy(read_.data(), from, kBytes); });
  }
  bool lease_ended() const {
    pollfd pipe{.fd = pipe_.get(), .events = 0, .revents = 0};
    return ::poll(&pipe, 1, 0) == 1;
  }
  void wait_until_lease_ended() const {
    pollfd pipe{.fd = pipe_.get(), .events = 0, .revents = 0};
    EXPECT_EQ(::poll(&pipe, 1, static_cast<int>(absl::ToInt64Milliseconds(patience()))), 1);
  }

  static constexpr std::int64_t kBytes = 3 * 4096;
  FakeDevice& device_ = FakeDevice::instance();
  const Stream stream_ = device_.make_stream();
  const TempFolder folder_;
  const Scheme scheme_ = on_fake_device(*find_scheme("shm").value());
  SenderMemory memory_ = SenderMemory::make({{"w", DType::kU8, {kBytes}}}, {}, 3);
  ControlPage other_page_ = ControlPage::make(kEpoch + 1).value();
  UniqueFd pipe_;  // our end of the lease pipe
  std::vector<std::byte> tensors_ = std::vector<std::byte>(kBytes), read_ = std::vector<std::byte>(kBytes);
  WireSender sender_{folder_.path()};
  std::optional<Receiver> receiver_;
};

}  // namespace bascule::test
