// DeviceCopies over shm's slots.
#include <bascule/receiver/device_copies.h>

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <cstring>
#include <random>

#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule {
namespace {

using test::IsOk;

constexpr std::uint64_t kBytes = 3 * kHostPieceBytes + 4321;

class DeviceCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_GPUS(1);
    const absl::StatusOr<Endpoint> endpoint = Endpoint::parse("shm:///tmp/unused");
    ASSERT_THAT(endpoint, IsOk());
    copies_.emplace(find_scheme("shm").value()->make_receiver(*endpoint), 0, 2);
    ReceivedOffer offer{.bytes = {}, .descriptors = {}, .slots = {}, .slot_bytes = kBytes};
    for (std::uint32_t i = 0; i < 2; ++i) {
      absl::StatusOr<SlotMemory> memory = make_memfd("slot", kBytes);
      ASSERT_THAT(memory, IsOk());
      offer.descriptors.emplace_back(::fcntl(memory->descriptor.get(), F_DUPFD_CLOEXEC, 0));
      offer.slots.push_back({kEpoch, i});
      slots_.push_back(*std::move(memory));
    }
    ASSERT_THAT(copies_->accept(std::move(offer)), IsOk());
  }

  void write(std::uint32_t slot, std::uint64_t begin, std::uint64_t end, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::span<std::byte> to = slots_[slot].writable();
    for (; begin < end; begin += 8) {
      const std::uint64_t word = random();
      std::memcpy(&to[begin], &word, std::min<std::uint64_t>(8, end - begin));
    }
  }
  static Publication publication(Version version, std::uint32_t slot) {
    return {.version = version, .slot = {kEpoch, slot}, .bytes = kBytes, .digest = std::nullopt};
  }
  static std::vector<std::byte> bytes_of(const SlotView& view) {
    std::vector<std::byte> bytes(view.bytes.size());
    EXPECT_EQ(cudaMemcpy(bytes.data(), view.bytes.data(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }
  static Digest digest_of(std::span<const std::byte> bytes) {
    kernels::ThreadPool pool(4);
    return kernels::digest(bytes, pool);
  }
  std::vector<std::byte> bytes_of(std::uint32_t slot) {
    const std::span<const std::byte> bytes = slots_[slot].writable();
    return {bytes.begin(), bytes.end()};
  }

  static constexpr Epoch kEpoch = 5;
  const Deadline deadline_ = Deadline(absl::Seconds(30));
  std::vector<SlotMemory> slots_;
  std::optional<DeviceCopies> copies_;
};

// Bytes copied behind the writer are on the device before the version is sealed: later writes do not reach them.
TEST_F(DeviceCopiesTest, RunBehindTheWriter) {
  write(0, 0, 2 * kHostPieceBytes, 1);
  std::vector<std::byte> expected = bytes_of(0U);
  copies_->copy_behind(publication(1, 0), 2 * kHostPieceBytes - 1);  // one whole piece
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  write(0, 0, kBytes, 2);
  const std::vector<std::byte> later = bytes_of(0U);
  std::copy(later.begin() + kHostPieceBytes, later.end(), expected.begin() + kHostPieceBytes);
  copies_->copy_behind(publication(1, 0), kBytes);
  const absl::StatusOr<SlotView> view = copies_->prepare(publication(1, 0), deadline_);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->device, 0);
  EXPECT_TRUE(bytes_of(*view) == expected);
  EXPECT_EQ(view->digest, digest_of(expected)) << "of the copied bytes, not of later writes";
}

TEST_F(DeviceCopiesTest, AreReadUntilTheyAreReleasedWhateverComesNext) {
  write(0, 0, kBytes, 1);
  const std::vector<std::byte> first = bytes_of(0U);
  const absl::StatusOr<SlotView> one = copies_->prepare(publication(1, 0), deadline_);
  ASSERT_THAT(one, IsOk());
  write(1, 0, kBytes, 2);
  copies_->copy_behind(publication(2, 1), kHostPieceBytes);  // and aborted
  write(1, 0, kBytes, 3);
  const absl::StatusOr<SlotView> three = copies_->prepare(publication(3, 1), deadline_);
  ASSERT_THAT(three, IsOk());
  EXPECT_NE(one->slot, three->slot);
  EXPECT_TRUE(bytes_of(*three) == bytes_of(1U));
  EXPECT_EQ(three->digest, digest_of(bytes_of(1U))) << "nothing is left of the aborted one";
  write(0, 0, kBytes, 4);
  const absl::StatusOr<SlotView> four = copies_->prepare(publication(4, 0), deadline_);  // more than it keeps
  ASSERT_THAT(four, IsOk());
  EXPECT_TRUE(bytes_of(*one) == first);
  const absl::StatusOr<SlotView> again = copies_->prepare(publication(3, 1), deadline_);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->slot, three->slot) << "given the version that it has";
  for (const SlotView* view : {&*one, &*three, &*four}) copies_->end_read(view->slot);
  write(1, 0, kBytes, 5);
  const absl::StatusOr<SlotView> five = copies_->prepare(publication(5, 1), deadline_);
  ASSERT_THAT(five, IsOk());
  EXPECT_TRUE(bytes_of(*five) == bytes_of(1U));
}

// The wrong byte was copied before it was right in the slot.
TEST_F(DeviceCopiesTest, ReadWrongTilesAgain) {
  constexpr std::uint64_t kWrong = kHostPieceBytes + 3 * kernels::kTileBytes + 77;
  write(0, 0, kBytes, 1);
  slots_[0].writable()[kWrong] ^= std::byte{1};
  copies_->copy_behind(publication(1, 0), kBytes);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  slots_[0].writable()[kWrong] ^= std::byte{1};
  const absl::StatusOr<SlotView> view = copies_->prepare(publication(1, 0), deadline_);
  ASSERT_THAT(view, IsOk());
  const Digest right = digest_of(bytes_of(0U));
  ASSERT_NE(view->digest, right);
  const std::uint64_t begin = kWrong / kernels::kTileBytes * kernels::kTileBytes;
  const std::vector<ByteRange> other = {{0, kernels::kTileBytes}}, wrong = {{begin, begin + kernels::kTileBytes}};
  EXPECT_NE(copies_->read_again(publication(1, 0), view->slot, other, deadline_).value(), right);
  EXPECT_EQ(copies_->read_again(publication(1, 0), view->slot, wrong, deadline_).value(), right);
  EXPECT_TRUE(bytes_of(*view) == bytes_of(0U));
  EXPECT_EQ(copies_->prepare(publication(1, 0), deadline_)->digest, right) << "given the version that it has";
  write(1, 0, kBytes, 2);
  const absl::StatusOr<SlotView> next = copies_->prepare(publication(2, 1), deadline_);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(next->digest, digest_of(bytes_of(1U)));
}

// A version that comes again starts over if another one was begun meanwhile: only one is digested at a time.
TEST_F(DeviceCopiesTest, ThatWereLeftForAnotherVersionBeginAnew) {
  write(0, 0, kBytes, 1);
  write(1, 0, kBytes, 2);
  copies_->copy_behind(publication(1, 0), 2 * kDevicePieceBytes);
  copies_->copy_behind(publication(2, 1), kDevicePieceBytes);
  for (const Version version : {1, 2}) {
    const auto slot = static_cast<std::uint32_t>(version - 1);
    const absl::StatusOr<SlotView> view = copies_->prepare(publication(version, slot), deadline_);
    ASSERT_THAT(view, IsOk());
    EXPECT_TRUE(bytes_of(*view) == bytes_of(slot));
    EXPECT_EQ(view->digest, digest_of(bytes_of(slot)));
  }
}

}  // namespace
}  // namespace bascule
