#include <bascule/kernels/arithmetic.h>

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "adapters.h"
#include "naive_table.h"
#include "processors.h"
#include "same_bytes.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

class ArithmeticOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  std::vector<std::byte> packed(const Adapters& adapters, int threads, Digest* digest = nullptr,
                                std::span<TileTotal> table = {}) {
    ThreadPool pool(threads);
    std::vector<std::byte> slot(adapters.tensors.slot_bytes + 64);
    const auto shift = (64 - reinterpret_cast<std::uintptr_t>(slot.data()) % 64) % 64;
    const auto aligned = std::span(slot).subspan(shift, adapters.tensors.slot_bytes);
    const auto made = pack(adapters.tensors.segments, adapters.tensors.addresses, aligned, digest != nullptr, pool,
                           nullptr, *GetParam().processor, adapters.arithmetic, {.totals = table});
    if (digest != nullptr) *digest = *made;
    return {aligned.begin(), aligned.end()};
  }
  void expect_packed(const Adapters& adapters, int threads) {
    const std::vector<std::byte> expected = naive_pack(adapters);
    Digest digest;
    std::vector<TileTotal> table(tiles_of(expected.size()));
    const std::vector<std::byte> found = packed(adapters, threads, &digest, table);
    ASSERT_TRUE(same_bytes(expected, found));
    ThreadPool pool(1);
    ASSERT_EQ(digest, kernels::digest(expected, pool, plain_processor()));
    ASSERT_EQ(table, naive_table(expected, 0));
  }
};

TEST_P(ArithmeticOn, RandomAdaptersAreThoseOfTheFormula) {
  for (std::uint64_t seed = 1; seed <= (kIsInstrumented ? 3 : 12); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(expect_packed(random_adapters(seed, 12, seed % 3 == 0 ? 400 : 30), 1 + int(seed % 3)));
  }
}

TEST_P(ArithmeticOn, RanksAreServedUpToTheLargest) {
  std::mt19937_64 random(7);
  for (const std::int64_t rank : {1, 2, 15, 16, 17, 64, 511, 512}) {
    SCOPED_TRACE(rank);
    Adapters adapters;
    adapters.tensors.add_run(DType::kU8, DType::kU8, 2, random);  // elements lie across the borders of tiles
    adapters.merge({DType::kBF16, DType::kBF16, DType::kF32, DType::kF32}, 40, 1024, rank, 2, false, random);
    adapters.merge({DType::kF32, DType::kF32, DType::kBF16, DType::kBF16}, 3, 5000, rank, 0.5F, true, random);
    ASSERT_NO_FATAL_FAILURE(expect_packed(adapters, 2));
  }
}

// A slot that does not fit in the caches: matrices whose rows are whole lines are made many tiles at a time.
TEST_P(ArithmeticOn, LargeMergesAreThoseOfTheFormula) {
  std::mt19937_64 random(13);
  Adapters adapters;
  adapters.tensors.add_run(DType::kU8, DType::kU8, 64, random);  // then no row begins on a tile
  adapters.merge({DType::kBF16, DType::kBF16, DType::kF32, DType::kF32}, 400, 1056, 3, 2, false, random);
  adapters.merge({DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16}, 65, 4096, 2, 1e-3F, false, random);
  adapters.merge({DType::kBF16, DType::kBF16, DType::kF32, DType::kF32}, 3, 70'016, 1, 2, true, random);
  adapters.merge({DType::kF32, DType::kF32, DType::kF32, DType::kF32}, 250, 1008, 2, 2, false, random);
  adapters.merge({DType::kF32, DType::kBF16, DType::kF32, DType::kF32}, 500, 416, 2, 2, false, random);
  adapters.merge({DType::kF16, DType::kF16, DType::kF32, DType::kF32}, 701, 480, 2, 2, false, random);
  adapters.merge({DType::kF16, DType::kBF16, DType::kF32, DType::kF32}, 301, 512, 2, 2, false, random);
  adapters.merge({DType::kBF16, DType::kBF16, DType::kF32, DType::kF32}, 301, 1000, 2, 2, false, random);  // no lines
  for (std::size_t tensor = 1; tensor < adapters.tensors.storages.size(); tensor += 3) {  // w: NaNs, denormals, ...
    std::vector<std::byte>& bytes = adapters.tensors.storages[tensor];
    for (std::size_t i = random() % 5000; i < bytes.size(); i += random() % 5000) bytes[i] = std::byte(random());
    for (std::size_t i = random() % 5000; i + 4 <= bytes.size(); i += random() % 50000)
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i), 4, std::byte(random() % 2 == 0 ? 0xff : 0));
  }
  ASSERT_GT(adapters.tensors.slot_bytes, kFitsInCachesBytes);
  ASSERT_NO_FATAL_FAILURE(expect_packed(adapters, 2));
}

// In a slot that does not fit in the caches, scaled runs are written and digested in one pass, in whole and half tiles.
TEST_P(ArithmeticOn, LargeScaledRunsAreThoseOfTheFormula) {
  std::mt19937_64 random(15);
  Adapters adapters;
  for (const DType from : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType to : {DType::kF32, DType::kBF16, DType::kF16}) {
      adapters.scale(from, to, {180'224}, 0.37F, /*wild=*/true, random);
      adapters.tensors.add_run(DType::kF32, DType::kBF16, 64, random);
    }
  }
  ASSERT_GT(adapters.tensors.slot_bytes, kFitsInCachesBytes);
  ASSERT_NO_FATAL_FAILURE(expect_packed(adapters, 2));
  EXPECT_TRUE(packed(adapters, 2) == naive_pack(adapters)) << "without a digest";
}

// BF16 that are denormal, or become so, and NaNs, in every lane.
TEST_P(ArithmeticOn, RareNumbersAreThoseOfTheFormula) {
  std::mt19937_64 random(14);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    Adapters adapters;
    adapters.merge({dtype, dtype, DType::kF32, DType::kF32}, 9, 112, 2, 1e-39F, false, random);
    std::vector<std::byte>& w = adapters.tensors.storages[0];
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = std::byte(random() & (i % 2 == 1 && random() % 4 != 0 ? 0x80 : 0xff));  // most exponents are 0
    ASSERT_NO_FATAL_FAILURE(expect_packed(adapters, 1));
  }
}

// A thread that flushes denormals or rounds upward packs the same bits.
TEST_P(ArithmeticOn, TheThreadsRoundingModeDoesNotMatter) {
  std::mt19937_64 random(9);
  Adapters adapters;
  adapters.scale(DType::kF32, DType::kBF16, {60, 70}, 1e-3F, /*wild=*/true, random);
  adapters.scale(DType::kF32, DType::kF32, {60, 70}, 1e-30F, /*wild=*/true, random);
  adapters.scale(DType::kF32, DType::kF32, {1'100'000}, 1e-30F, /*wild=*/true, random);  // more than fits in the caches
  adapters.merge({DType::kF32, DType::kF32, DType::kF32, DType::kF32}, 33, 65, 5, 1e-38F, false, random);
  const std::vector<std::byte> expected = naive_pack(adapters);
  std::fenv_t before{};
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  const std::vector<std::byte> found = packed(adapters, 1);
  const int rounding = std::fegetround();
  std::fesetenv(&before);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(rounding, FE_UPWARD) << "the caller's mode is left as it was";
}

// Whatever NaN arithmetic makes, the slot has one NaN per type.
TEST_P(ArithmeticOn, NansAreTheSlotTypes) {
  std::mt19937_64 random(11);
  Adapters adapters;
  adapters.scale(DType::kF32, DType::kF32, {4, 4}, 2, false, random);
  adapters.merge({DType::kF32, DType::kF32, DType::kF32, DType::kF32}, 4, 4, 2, 1, false, random);
  const auto set = [&](std::size_t storage, std::size_t element, std::uint32_t bits) {
    std::memcpy(adapters.tensors.storages[storage].data() + 4 * element, &bits, sizeof(bits));
  };
  set(0, 0, 0xffc12345U);
  set(0, 1, 0x7f812345U);  // signalling
  set(1, 3, 0xffc00001U);
  set(2, 0, std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity()));
  set(3, 1, 0);  // infinity times zero
  const std::vector<std::byte> found = packed(adapters, 1);
  EXPECT_TRUE(found == naive_pack(adapters));
  std::uint32_t first = 0;
  std::memcpy(&first, found.data(), sizeof(first));
  EXPECT_EQ(first, 0x7fffffffU);
}

TEST(Arithmetic, IsRefusedIfItCannotBeDone) {
  std::mt19937_64 random(1);
  Adapters adapters;
  adapters.merge({DType::kF32, DType::kBF16, DType::kF32, DType::kF32}, 4, 6, 2, 1, false, random);
  const Segment segment = adapters.tensors.segments[0];
  const Arithmetic good = adapters.arithmetic[0];
  const auto can = [&](const Arithmetic& wanted) { return can_compute(segment, std::span(&wanted, 1), 3); };
  EXPECT_TRUE(can(good));
  EXPECT_FALSE(can_compute(segment, {}, 3)) << "no such arithmetic";
  EXPECT_FALSE(can_compute(segment, adapters.arithmetic, 2)) << "no such factor";
  Arithmetic bad = good;
  bad.columns = 5;
  EXPECT_FALSE(can(bad));
  bad = good;
  bad.rank = kMaxProductRank + 1;
  EXPECT_FALSE(can(bad));
  bad = good;
  bad.left.dtype = DType::kF64;
  EXPECT_FALSE(can(bad));
  Segment wide = segment;
  wide.tensor_dtype = DType::kF64;
  EXPECT_FALSE(can_compute(wide, adapters.arithmetic, 3));
}

INSTANTIATE_TEST_SUITE_P(Processors, ArithmeticOn, testing::ValuesIn(processors()), name_of_case);

}  // namespace
}  // namespace bascule::inline v0::kernels
