#include <bascule/kernels/digest_table.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "layouts.h"
#include "naive_table.h"
#include "processors.h"
#include "random_layouts.h"
#include "same_bytes.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 167 + (i >> 8) * 13 + (i >> 16) * 5);
  return bytes;
}

Digest sum_of(const std::vector<TileTotal>& table, std::uint64_t bytes) {
  TileTotal sum;
  for (const TileTotal& total : table) sum.add(total);
  return sum.finish(bytes);
}

class DigestTableOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  const Processor& processor() const { return *GetParam().processor; }
};

TEST_P(DigestTableOn, HoldsTheSumOfEachTilesPages) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, kTileBytes, 9 * kTileBytes + 5000}) {
    const std::vector<std::byte> bytes = some_bytes(size);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      for (const std::uint64_t first_page : {std::uint64_t{0}, std::uint64_t{10}, std::uint64_t{1} << 50}) {
        std::vector<TileTotal> table(tiles_of(size));
        const Digest found = digest(bytes, pool, processor(), {.first_page = first_page, .totals = table});
        EXPECT_EQ(table, naive_table(bytes, first_page)) << size << " bytes from page " << first_page;
        if (first_page == 0) {
          EXPECT_EQ(found, digest(bytes, pool, plain_processor()));
          EXPECT_EQ(sum_of(table, size), found);
        }
      }
    }
  }
}

TEST_P(DigestTableOn, IsFilledByThePassThatPacks) {
  for (std::uint64_t seed = 1; seed <= (kIsSlow ? 2 : kIsInstrumented ? 4 : 8); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Tensors tensors = random_tensors(seed, 5 + seed * 4, seed % 3 == 0 ? 1'500'000 : 20'000);
    const std::vector<std::byte> expected = naive_pack(tensors);
    for (const std::uint64_t first_page : {0, 7}) {
      ThreadPool pool(static_cast<int>(1 + seed % 3));
      std::vector<std::byte> slot(tensors.slot_bytes);
      std::vector<TileTotal> table(tiles_of(slot.size()));
      pack(tensors.segments, tensors.addresses, slot, true, pool, nullptr, processor(), {},
           {.first_page = first_page, .totals = table});
      ASSERT_TRUE(same_bytes(expected, slot));
      ASSERT_EQ(table, naive_table(expected, first_page));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(On, DigestTableOn, testing::ValuesIn(processors()), name_of_case);

// Three regions that are hashed separately are the one slot that they form, side by side in whole pages.
TEST(DigestTable, TablesOfRegionsAddUpToTheDigestOfTheWhole) {
  ThreadPool pool(2);
  std::vector<std::byte> whole;
  TileTotal sum;
  std::uint64_t length = 0;
  for (const std::size_t bytes : {std::size_t{3 * kTileBytes + 100}, std::size_t{5000}, std::size_t{kTileBytes + 1}}) {
    const std::vector<std::byte> region = some_bytes(bytes);
    std::vector<TileTotal> table(tiles_of(bytes));
    digest(region, pool, {.first_page = whole.size() / kPageBytes, .totals = table});
    for (const TileTotal& total : table) sum.add(total);
    length = whole.size() + bytes;
    whole.insert(whole.end(), region.begin(), region.end());
    whole.resize(pages_of(whole.size()) * kPageBytes);
  }
  EXPECT_EQ(sum.finish(length), digest(std::span(whole).first(length), pool));
}

TEST(DigestTable, ATileAloneHasTheTotalOfTheTable) {
  const std::vector<std::byte> bytes = some_bytes(2 * kTileBytes + 777);
  const std::vector<TileTotal> table = naive_table(bytes, 3);
  for (std::size_t tile = 0; tile < table.size(); ++tile) {
    const std::size_t begin = tile * kTileBytes;
    const auto part = std::span(bytes).subspan(begin, std::min(kTileBytes, bytes.size() - begin));
    EXPECT_EQ(tile_total(part, 3 + tile * kTilePages), table[tile]);
    EXPECT_NE(tile_total(part, 4 + tile * kTilePages), table[tile]) << "a tile in the place of another";
  }
}

TEST(DigestTable, IsCopiedAndAddedUpInOnePass) {
  for (const std::size_t tiles : {0U, 1U, 255U, 256U, 257U, 1000U}) {
    std::vector<TileTotal> table(tiles), copy(tiles);
    TileTotal sum;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      table[tile] = {.low = ~std::uint64_t{0} - tile * tile, .high = tile << 60 | tile};  // both halves overflow
      sum.add(table[tile]);
    }
    EXPECT_EQ(sum_of(table), sum);
    EXPECT_EQ(copy_and_sum(table, copy), sum);
    EXPECT_EQ(copy, table);
  }
}

TEST(DigestTable, DiffersOnlyInWantedTiles) {
  constexpr std::size_t kTiles = 100;
  const std::vector<TileTotal> table(kTiles, {.low = 1, .high = 2});
  for (std::size_t tile = 0; tile < kTiles; ++tile)
    for (const TileTotal other : {TileTotal{.low = 1, .high = 3}, TileTotal{.low = 1 | 1ULL << 63, .high = 2}}) {
      std::vector<TileTotal> found = table;
      found[tile] = other;
      std::vector<std::uint8_t> wanted(kTiles, 1);
      EXPECT_FALSE(equal_totals(table, found, wanted)) << tile;
      wanted[tile] = 0;
      EXPECT_TRUE(equal_totals(table, found, wanted)) << tile;
    }
  EXPECT_TRUE(equal_totals({}, {}, {}));
}

}  // namespace
}  // namespace bascule::inline v0::kernels
