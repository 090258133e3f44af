#include <bascule/kernels/pack.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "layouts.h"
#include "processors.h"
#include "random_layouts.h"
#include "same_bytes.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

constexpr std::byte kUntouched{0x5a};

// A slot at an address that is `shift` bytes off a cache line, followed by a guard.
class Slot {
 public:
  Slot(std::size_t bytes, std::size_t shift) : storage_(bytes + shift + 128, kUntouched), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = (64 - address % 64) % 64 + shift;
  }
  std::span<std::byte> bytes() { return std::span(storage_).subspan(begin_, bytes_); }
  bool guards_are_untouched() const {
    const auto is_untouched = [](std::byte byte) { return byte == kUntouched; };
    return std::all_of(storage_.begin(), storage_.begin() + long(begin_), is_untouched) &&
           std::all_of(storage_.begin() + long(begin_ + bytes_), storage_.end(), is_untouched);
  }

 private:
  std::vector<std::byte> storage_;
  std::size_t bytes_;
  std::size_t begin_ = 0;
};

// Packs and compares with the naive pack: bytes, digest, guards, bytes_done.
void expect_packed(const Tensors& tensors, const Processor& processor, int threads, std::size_t shift,
                   const std::vector<std::byte>& expected) {
  SCOPED_TRACE(testing::Message() << threads << " threads, slot of " << tensors.slot_bytes << " bytes, " << shift
                                  << " off a cache line");
  ThreadPool pool(threads);
  for (const bool want_digest : {true, false}) {
    Slot slot(tensors.slot_bytes, shift);
    std::atomic<std::uint64_t> done{0};
    const auto found = pack(tensors.segments, tensors.addresses, slot.bytes(), want_digest, pool, &done, processor);
    ASSERT_TRUE(same_bytes(expected, slot.bytes()));
    ASSERT_TRUE(slot.guards_are_untouched());
    ASSERT_EQ(done.load(), tensors.slot_bytes);
    ASSERT_EQ(found.has_value(), want_digest);
    if (found) {
      ASSERT_EQ(*found, digest(slot.bytes(), pool, plain_processor()));
    }
  }
}

class PackOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  const Processor& processor() const { return *GetParam().processor; }
};

TEST_P(PackOn, RandomLayoutsAreThoseOfTheNaivePack) {
  for (std::uint64_t seed = 1; seed <= (kIsSlow ? 2 : kIsInstrumented ? 6 : 12); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Tensors tensors = random_tensors(seed, 5 + seed * 4, seed % 3 == 0 ? 200'000 : 20'000);
    const std::vector<std::byte> expected = naive_pack(tensors);
    for (const int threads : {1, 2, 3, 4})
      ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, processor(), threads, threads == 2 ? seed * 5 % 64 : 0, expected));
  }
}

// Above the size at which stores begin to bypass the caches.
TEST_P(PackOn, LargeSlotsAreThoseOfTheNaivePack) {
  std::mt19937_64 random(99);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kF32, DType::kBF16},
                                 std::pair{DType::kF32, DType::kF16}, std::pair{DType::kBF16, DType::kF32},
                                 std::pair{DType::kF16, DType::kF32}, std::pair{DType::kF64, DType::kF32},
                                 std::pair{DType::kF16, DType::kBF16}, std::pair{DType::kBF16, DType::kF16}}) {
    if (kIsSlow && to != DType::kBF16) continue;
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    Tensors tensors;
    tensors.add_run(from, to, 800'000, random);
    for (int i = 0; i < 60; ++i) tensors.add_run(from, to, 1 + i * 31, random);
    tensors.add(from, to, {1500, 700}, {1, 0}, 0, false, 1, random);
    tensors.add_run(DType::kU8, DType::kU8, 3,
                    random);  // later elements lie across the borders of tiles
    tensors.add(from, to, {300'000}, {0}, 0, false, 2, random);
    tensors.add_run(from, to, 500'000, random);
    const std::vector<std::byte> expected = naive_pack(tensors);
    ASSERT_GT(expected.size(), std::size_t{4} << 20);
    ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, processor(), 3, 0, expected));
    ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, processor(), 2, 7, expected));
  }
}

TEST_P(PackOn, TenThousandSmallTensors) {
  std::mt19937_64 random(5);
  Tensors tensors;
  for (int i = 0; i < (kIsSlow ? 1'000 : 10'000); ++i)
    tensors.add_run(DType::kF32, DType::kBF16, 400 + i % 300, random);
  const std::vector<std::byte> expected = naive_pack(tensors);
  ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, processor(), 2, 0, expected));
}

TEST_P(PackOn, NothingAtAll) {
  ASSERT_NO_FATAL_FAILURE(expect_packed({}, processor(), 2, 0, {}));
  std::mt19937_64 random(5);
  Tensors tensors;
  tensors.add(DType::kF32, DType::kBF16, {3, 0, 2}, {0, 1, 2}, 0, false, 0, random);
  ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, processor(), 2, 0, {}));
}

TEST_P(PackOn, ACopyOfTheSameTypeKeepsEveryNan) {
  std::vector<std::uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<Segment> segments = {{.tensor_dtype = dtype,
                                            .slot_dtype = dtype,
                                            .elements = all.size(),
                                            .shape = {1 << 16},
                                            .tensor_strides = {1},
                                            .slot_strides = {1}}};
    const std::vector<const std::byte*> addresses = {reinterpret_cast<const std::byte*>(all.data())};
    std::vector<std::uint16_t> slot(all.size());
    ThreadPool pool(1);
    pack(segments, addresses, std::as_writable_bytes(std::span(slot)), true, pool, nullptr, processor());
    EXPECT_EQ(slot, all);
  }
}

// The bytes that a reader may copy must be written: it reads bytes_done while the pack runs.
TEST_P(PackOn, BytesDoneOnlyGrowsAndCoversWhatIsComplete) {
  std::mt19937_64 random(11);
  Tensors tensors;
  for (int i = 0; i < 40; ++i) tensors.add_run(DType::kF32, DType::kBF16, 100'000 + 1000 * i, random);
  const std::vector<std::byte> expected = naive_pack(tensors);
  ThreadPool pool(4);
  for (int round = 0; round < (kIsSlow ? 2 : 5); ++round) {
    Slot slot(tensors.slot_bytes, 0);
    std::atomic<std::uint64_t> done{0};
    std::atomic<bool> wrong{false};
    std::atomic<bool> watching{false};
    std::thread reader([&] {
      std::uint64_t seen = 0;
      watching = true;
      while (seen < tensors.slot_bytes && !wrong) {
        const std::uint64_t now = done.load(std::memory_order_acquire);
        if (now < seen || now > expected.size()) {
          wrong = true;
        } else if (!same_bytes(std::span(expected).subspan(seen, now - seen), slot.bytes().subspan(seen, now - seen))) {
          wrong = true;
        }
        seen = now;
      }
    });
    while (!watching) std::this_thread::yield();
    pack(tensors.segments, tensors.addresses, slot.bytes(), true, pool, &done, processor());
    EXPECT_EQ(done.load(), tensors.slot_bytes);
    reader.join();
    ASSERT_FALSE(wrong);
  }
}

INSTANTIATE_TEST_SUITE_P(On, PackOn, testing::ValuesIn(processors()), name_of_case);

}  // namespace
}  // namespace bascule::inline v0::kernels
