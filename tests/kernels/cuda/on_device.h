// Device memory with guards around it, and the tensors of layouts.h and boxes.h copied there and back.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <bascule/kernels/cuda_memory.h>
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

// With a CPU's plain code.
inline Digest digest_of(const std::vector<std::byte>& bytes) {
  ThreadPool pool(2);
  return kernels::digest(bytes, pool, plain_processor());
}

}  // namespace bascule::inline v0::kernels::cuda
