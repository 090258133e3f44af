// A send allocates nothing, and a plan little: the global operator new counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "layouts.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/pack.h>
#include <bascule/kernels/share.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>

namespace {
std::atomic<std::size_t> allocations{0}, allocated_bytes{0};
}  // namespace

// Not inlined: GCC would see malloc and free on only one side and warn about a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort allocates this way; a sanitizer would pair its own operator with the delete below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace bascule::inline v0::kernels {
namespace {

TEST(Allocation, IsCounted) {
  const std::size_t before = allocations.load();
  void* memory = ::operator new(1);  // called by name, it is not elided
  ::operator delete(memory);
  EXPECT_EQ(allocations.load(), before + 1);
}

TEST(Allocation, PackDigestAndUnpackMakeNone) {
  std::mt19937_64 random(1);
  Tensors tensors;
  tensors.add(DType::kF32, DType::kF32, {900, 1000}, {1, 0}, 0, false, 0, random);
  for (int i = 0; i < 300; ++i) tensors.add_run(DType::kF32, DType::kBF16, 5000, random);
  std::vector<std::byte> slot(tensors.slot_bytes);
  std::vector<std::vector<std::byte>> copies = tensors.storages;
  std::vector<std::byte*> targets;
  for (std::vector<std::byte>& copy : copies) targets.push_back(copy.data());
  ThreadPool pool(3);
  const std::size_t before = allocations.load();
  const auto packed = pack(tensors.segments, tensors.addresses, slot, true, pool);
  const Digest again = digest(slot, pool);
  const auto unpacked = unpack(tensors.segments, targets, slot, true, pool);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(packed, again);
  EXPECT_EQ(unpacked, again);
}

// 24 KiB: the shares of 256 tiles, and 22 KiB to spare.
TEST(Allocation, ABoxOfTwoMillionRowsTakesNoMemoryPerRow) {
  constexpr std::int64_t kRows = std::int64_t{1} << 21, kColumns = 8, kOwn = 3;
  const Segment box{.tensor_dtype = DType::kU8,
                    .slot_dtype = DType::kU8,
                    .rank = 2,
                    .slot_offset = 2,
                    .elements = kRows * kOwn,
                    .shape = {kRows, kOwn},
                    .tensor_strides = {kOwn, 1},
                    .slot_strides = {kColumns, 1}};
  std::vector<std::byte> slot(kRows * kColumns), own(kRows * kOwn, std::byte{7});
  const std::vector<const std::byte*> addresses = {own.data()};
  ThreadPool pool(2);
  const std::size_t before = allocated_bytes.load();
  const SharePlan plan({box}, slot.size());
  EXPECT_LT(allocated_bytes.load() - before, 24U << 10);
  const std::size_t planned = allocations.load();
  pack_share(plan, addresses, slot, {}, pool);
  EXPECT_EQ(allocations.load(), planned);
  for (std::size_t i = 0; i < slot.size(); ++i)
    ASSERT_EQ(slot[i], i % 8 >= 2 && i % 8 < 5 ? std::byte{7} : std::byte{0}) << i;
}

}  // namespace
}  // namespace bascule::inline v0::kernels
