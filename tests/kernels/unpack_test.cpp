#include <bascule/kernels/unpack.h>

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "boxes.h"
#include "layouts.h"
#include "naive_table.h"
#include "processors.h"
#include "random_layouts.h"
#include "same_bytes.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/scatter.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

// What a naive unpack makes of boxes.
struct Naive {
  std::vector<std::vector<std::byte>> storages;
  std::vector<TileTotal> table;
};

Naive unpacked_naively(Boxes& boxes) {
  boxes.forget();
  return {naive_unpack(boxes), naive_table(boxes.slot, 0)};
}

void expect_storages(const std::vector<std::vector<std::byte>>& expected, const Boxes& boxes) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(same_bytes(expected[i], boxes.storages[i])) << "of tensor " << i;
}

// Unpacks and compares with the naive unpack: every byte of every storage, and the digest.
void expect_unpacked(Boxes& boxes, const Naive& expected, const Processor& processor, int threads) {
  SCOPED_TRACE(testing::Message() << threads << " threads, slot of " << boxes.slot.size() << " bytes");
  ThreadPool pool(threads);
  for (const bool want_digest : {true, false}) {
    boxes.forget();
    const auto found = unpack(boxes.segments, boxes.addresses(), boxes.slot, want_digest, pool, processor);
    ASSERT_NO_FATAL_FAILURE(expect_storages(expected.storages, boxes));
    ASSERT_EQ(found.has_value(), want_digest);
    if (found) {
      ASSERT_EQ(*found, digest(boxes.slot, pool, plain_processor()));
    }
  }
  // Every other tile's total.
  const std::vector<TileTotal>& table = expected.table;
  constexpr TileTotal kNotWritten{.low = 1, .high = 2};
  std::vector<std::uint8_t> wanted(table.size());
  std::vector<TileTotal> totals(table.size(), kNotWritten);
  for (std::size_t tile = 0; tile < wanted.size(); tile += 2) wanted[tile] = 1;
  boxes.forget();
  EXPECT_EQ(unpack(boxes.segments, boxes.addresses(), boxes.slot, false, pool, processor, {wanted, totals}),
            std::nullopt);
  ASSERT_NO_FATAL_FAILURE(expect_storages(expected.storages, boxes));
  for (std::size_t tile = 0; tile < table.size(); ++tile)
    ASSERT_EQ(totals[tile], tile % 2 == 0 ? table[tile] : kNotWritten) << "tile " << tile;
}

class UnpackOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  const Processor& processor() const { return *GetParam().processor; }
};

TEST_P(UnpackOn, RandomBoxesAreThoseOfTheNaiveUnpack) {
  for (std::uint64_t seed = 1; seed <= (kIsSlow ? 3 : kIsInstrumented ? 6 : 16); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Boxes boxes = random_boxes(seed, 5 + seed * 4, seed % 3 == 0 ? 200'000 : 20'000);
    const Naive expected = unpacked_naively(boxes);
    for (const int threads : {1, 2, 3, 9})
      ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, expected, processor(), threads));
  }
}

TEST_P(UnpackOn, EveryCastIsThatOfTheReference) {
  std::mt19937_64 random(3);
  Boxes boxes;
  for (const DType from : kFloats)
    for (const DType to : kFloats)
      boxes.read(boxes.append(from, {1001}, random), {0}, {1001}, to, {0}, 0, from == to ? 1 : 0);
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    boxes.read(boxes.append(dtype, {77}, random), {0}, {77}, dtype, {0}, 0, 0);
  }
  ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, unpacked_naively(boxes), processor(), 2));
}

// Above the size at which copies begin to bypass the caches; whole tiles, tiles of many tensors, elements across ends.
TEST_P(UnpackOn, LargeSlotsAreThoseOfTheNaiveUnpack) {
  std::mt19937_64 random(99);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kBF16, DType::kF32},
                                 std::pair{DType::kF32, DType::kBF16}, std::pair{DType::kF64, DType::kF64}}) {
    if (kIsSlow && from != to) continue;
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    Boxes boxes;
    const auto whole = [&](std::int64_t elements, std::size_t shift) {
      boxes.read(boxes.append(from, {elements}, random), {0}, {elements}, to, {0}, 0, shift);
    };
    whole(800'000, 0);
    for (int i = 0; i < 60; ++i) whole(1 + i * 31, 0);
    const Boxes::InSlot matrix = boxes.append(from, {700, 1500}, random);
    boxes.read(matrix, {0, 0}, {700, 1500}, to, {0, 1}, 0, 0);
    boxes.read(matrix, {0, 500}, {700, 500}, to, {0, 1}, 0, 0);
    boxes.read(matrix, {0, 1499}, {700, 1}, to, {0, 1}, 2, 0);
    boxes.read(matrix, {350, 0}, {350, 1500}, to, {1, 0}, 0, 0);
    boxes.skip(3, random);  // later elements lie across the borders of tiles
    whole(500'000, 0);
    whole(500'000, 16);
    boxes.sort();
    ASSERT_GT(boxes.slot.size(), kFitsInCachesBytes);
    const Naive expected = unpacked_naively(boxes);
    for (const int threads : {1, 3}) ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, expected, processor(), threads));
  }
}

TEST_P(UnpackOn, NothingAtAll) {
  Boxes boxes;
  ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, unpacked_naively(boxes), processor(), 2));
  std::mt19937_64 random(5);
  boxes.read(boxes.append(DType::kF32, {3, 0, 2}, random), {0, 0, 0}, {3, 0, 2}, DType::kBF16, {0, 1, 2}, 0, 0);
  boxes.skip(200'000, random);
  ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, unpacked_naively(boxes), processor(), 2));
}

TEST_P(UnpackOn, UndoesAPack) {
  std::mt19937_64 random(8);
  Tensors tensors;
  for (int i = 0; i < (kIsSlow ? 20 : 200); ++i) {
    const DType dtype = static_cast<DType>(random() % kDTypes.size());
    tensors.add(dtype, dtype, {1 + i % 7, 200 + i}, {1, 0}, i % 3, i % 2 == 0, 0, random);
  }
  std::vector<std::vector<std::byte>> copies;
  std::vector<std::byte*> addresses;
  for (std::size_t i = 0; i < tensors.storages.size(); ++i) {
    copies.emplace_back(tensors.storages[i].size(), kUntouched);
    addresses.push_back(copies[i].data() + (tensors.addresses[i] - tensors.storages[i].data()));
  }
  std::vector<std::byte> slot(tensors.slot_bytes), again(tensors.slot_bytes);
  ThreadPool pool(3);
  const auto packed = pack(tensors.segments, tensors.addresses, slot, true, pool, nullptr, processor());
  EXPECT_EQ(unpack(tensors.segments, addresses, slot, true, pool, processor()), packed);
  const std::vector<const std::byte*> sources(addresses.begin(), addresses.end());
  pack(tensors.segments, sources, again, false, pool, nullptr, processor());
  EXPECT_TRUE(same_bytes(slot, again));
}

INSTANTIATE_TEST_SUITE_P(On, UnpackOn, testing::ValuesIn(processors()), name_of_case);

// A box of 3 x 4 of 5 x 7 elements, counted by checking each.
TEST(ElementsBefore, CountsThoseThatBeginBeforeAByte) {
  const Segment box{.slot_dtype = DType::kF32,
                    .rank = 3,
                    .slot_offset = 10,
                    .elements = 12,
                    .shape = {3, 1, 4},
                    .slot_strides = {7, 0, 1}};
  for (std::uint64_t byte = 0; byte < 100; ++byte) {
    std::uint64_t expected = 0;
    for (std::uint64_t row = 0; row < 3; ++row)
      for (std::uint64_t column = 0; column < 4; ++column)
        if (10 + 4 * (row * 7 + column) < byte) ++expected;
    ASSERT_EQ(elements_before(box, byte), expected) << "before byte " << byte;
  }
  EXPECT_EQ(slot_reach_of(box), 10U + 4 * (2 * 7 + 4));
}

}  // namespace
}  // namespace bascule::inline v0::kernels
