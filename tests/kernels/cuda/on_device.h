// Device memory with guards around it, and the tensors of layouts.h and boxes.h copied there and back.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels::cuda {

#define ASSERT_CUDA(result)                                                                                \
  do {                                                                                                     \
    const ::bascule::kernels::cuda::CudaResult bascule_result = (result);                                  \
    ASSERT_TRUE(bascule_result.ok()) << bascule_result.call << ": "                                        \
                                     << cudaGetErrorString(static_cast<cudaError_t>(bascule_result.code)); \
  } while (false)
#define ASSERT_CUDA_CALL(call) ASSERT_CUDA(BASCULE_CUDA_RESULT(call))

// A copy of host bytes on the device, `shift` bytes off 256, with guards on both sides.
class OnDevice {
 public:
  explicit OnDevice(std::span<const std::byte> bytes, std::size_t shift = 0) : bytes_(bytes.size()), shift_(shift) {
    std::vector<std::byte> all(bytes_ + shift + 2 * kGuard, kUntouchedByte);
    std::ranges::copy(bytes, all.begin() + static_cast<std::ptrdiff_t>(kGuard + shift));
    EXPECT_TRUE(DeviceMemory::make(all.size(), &memory_).ok());
    EXPECT_EQ(cudaMemcpy(memory_.as<void>(), all.data(), all.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::byte* data() const { return memory_.as<std::byte>() + kGuard + shift_; }

  // The current content; the guards must be unchanged.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(bytes_ + shift_ + 2 * kGuard);
    EXPECT_EQ(cudaMemcpy(all.data(), memory_.as<void>(), all.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    const auto is_untouched = [](std::byte byte) { return byte == kUntouchedByte; };
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kGuard + shift_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    EXPECT_TRUE(std::all_of(all.begin(), begin, is_untouched)) << "written before the beginning";
    EXPECT_TRUE(std::all_of(end, all.end(), is_untouched)) << "written past the end";
    return {begin, end};
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kUntouchedByte{0x5a};
  DeviceMemory memory_;
  std::size_t bytes_, shift_;
};

// Where kernels store the totals of all tiles, or of every third one.
class TotalsOnDevice {
 public:
  explicit TotalsOnDevice(std::uint64_t slot_bytes, bool all) : tiles_(tiles_of(slot_bytes)), wanted_(tiles_) {
    for (std::uint64_t tile = 0; tile < tiles_; ++tile) wanted_[tile] = all || tile % 3 == 1 ? 1 : 0;
    EXPECT_TRUE(PinnedMemory::make((tiles_ + 1) * sizeof(TileTotal), &totals_).ok());
    EXPECT_TRUE(DeviceMemory::make(tiles_ + 1, &marks_).ok());
    EXPECT_EQ(cudaMemcpy(marks_.as<void>(), wanted_.data(), tiles_, cudaMemcpyHostToDevice), cudaSuccess);
    std::fill_n(totals_.as<TileTotal>(), tiles_, kUntouchedTotal);
    output_ = {.totals = totals_.as<TileTotal>(), .wanted = all ? nullptr : marks_.as<std::uint8_t>()};
  }
  const TileOutput& output() const { return output_; }

  // The totals must belong to `slot`, and nothing else was written.
  void expect_of(std::span<const std::byte> slot) const {
    for (std::uint64_t tile = 0; tile < tiles_; ++tile) {
      const std::uint64_t begin = tile * kTileBytes;
      const TileTotal expected =
          tile_total(slot.subspan(begin, std::min(kTileBytes, slot.size() - begin)), tile * kTilePages);
      ASSERT_EQ(totals_.as<TileTotal>()[tile], wanted_[tile] != 0 ? expected : kUntouchedTotal) << "tile " << tile;
    }
  }

 private:
  static constexpr TileTotal kUntouchedTotal{.low = 0x5a, .high = 0xa5};
  std::uint64_t tiles_;
  std::vector<std::uint8_t> wanted_;
  PinnedMemory totals_;
  DeviceMemory marks_;
  TileOutput output_;
};

// With a CPU's plain code.
inline Digest digest_of(const std::vector<std::byte>& bytes) {
  ThreadPool pool(2);
  return kernels::digest(bytes, pool, plain_processor());
}

}  // namespace bascule::inline v0::kernels::cuda
