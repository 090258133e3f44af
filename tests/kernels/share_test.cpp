#include <bascule/kernels/share.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "processors.h"
#include "random_layouts.h"
#include "same_bytes.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

using Numbers = std::vector<std::int64_t>;

// A slot that several writers fill, element by element, and what each of them packs.
struct SharedSlot {
  struct Writer {
    std::vector<Segment> boxes;
    std::vector<std::vector<std::byte>> storages;
    std::vector<const std::byte*> addresses;
  };
  std::vector<Writer> writers;
  std::vector<std::byte> expected;
  std::vector<std::uint8_t> owners;  // of each byte: the writer, or kNoOwner
  static constexpr std::uint8_t kNoOwner = 255;
  bool leaves_out = true;  // some boxes are no writer's

  void skip(std::size_t bytes) {
    expected.resize(expected.size() + bytes, kUntouched);
    owners.resize(expected.size(), kNoOwner);
  }

  // Appends a tensor, cut in two up to `depth` times. Each box goes to one writer, or is left out.
  void append(DType from, DType to, const Numbers& shape, int depth, std::mt19937_64& random) {
    std::size_t bytes = size_of(to);
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    const std::uint64_t offset = expected.size();
    skip(bytes);
    split(from, to, offset, shape, Numbers(shape.size(), 0), shape, depth, random);
  }

 private:
  void split(DType from, DType to, std::uint64_t offset, const Numbers& whole, Numbers begin, Numbers extent, int depth,
             std::mt19937_64& random) {
    const std::size_t d = whole.empty() ? 0 : random() % whole.size();
    if (depth == 0 || whole.empty() || extent[d] < 2) {
      if (!leaves_out || random() % 8 != 0) own(from, to, offset, whole, begin, extent, random);
      return;
    }
    // Often at whole lines, since such boxes are written past the caches.
    std::int64_t first = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent[d] - 1));
    if (first > 32 && random() % 2 == 0) first -= first % 32;
    Numbers head = extent, tail = extent, middle = begin;
    head[d] = first;
    tail[d] -= first;
    middle[d] += first;
    split(from, to, offset, whole, begin, head, depth - 1, random);
    split(from, to, offset, whole, middle, tail, depth - 1, random);
  }

  void own(DType from, DType to, std::uint64_t offset, const Numbers& whole, const Numbers& begin,
           const Numbers& extent, std::mt19937_64& random) {
    const std::uint8_t number = static_cast<std::uint8_t>(random() % writers.size());
    Writer& writer = writers[number];
    std::vector<std::size_t> order(whole.size());
    std::iota(order.begin(), order.end(), 0);
    if (random() % 4 == 0) std::shuffle(order.begin(), order.end(), random);
    const auto gap = static_cast<std::int64_t>(random() % 4 == 0 ? random() % 3 : 0);
    Segment box{.tensor = static_cast<std::uint32_t>(writer.boxes.size()),
                .tensor_dtype = from,
                .slot_dtype = to,
                .rank = static_cast<std::uint32_t>(whole.size()),
                .slot_offset = offset,
                .elements = 1};
    std::int64_t dense = 1, stride = 1;
    for (std::size_t d = whole.size(); d-- > 0;) {
      box.shape[d] = extent[d];
      box.slot_strides[d] = dense;
      box.slot_offset += static_cast<std::uint64_t>(begin[d] * dense) * size_of(to);
      box.elements *= static_cast<std::uint64_t>(extent[d]);
      dense *= whole[d];
      box.tensor_strides[order[d]] = stride;
      stride *= extent[order[d]] + gap;
    }
    std::vector<std::byte>& storage =
        writer.storages.emplace_back(static_cast<std::size_t>(stride) * size_of(from) + 8);
    for (std::size_t i = 0; i + 8 <= storage.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(storage.data() + i, &word, sizeof(word));
    }
    const RunCast cast = plain_processor().run_cast(from, to);
    for (std::uint64_t element = 0; element < box.elements; ++element) {
      const auto index = index_of(box, element);
      std::int64_t in_tensor = 0, in_slot = 0;
      for (std::size_t d = 0; d < whole.size(); ++d) {
        in_tensor += index[d] * box.tensor_strides[d];
        in_slot += index[d] * box.slot_strides[d];
      }
      const std::uint64_t at = box.slot_offset + static_cast<std::uint64_t>(in_slot) * size_of(to);
      const std::byte* const source = storage.data() + static_cast<std::size_t>(in_tensor) * size_of(from);
      if (cast != nullptr) {
        cast(source, expected.data() + at, 1);
      } else {
        std::memcpy(expected.data() + at, source, size_of(to));
      }
      std::fill_n(owners.begin() + static_cast<std::ptrdiff_t>(at), size_of(to), number);
    }
    writer.addresses.push_back(storage.data());
    writer.boxes.push_back(box);
  }
};

SharedSlot random_slot(std::uint64_t seed, std::size_t tensors, std::int64_t most_elements) {
  std::mt19937_64 random(seed);
  SharedSlot slot;
  slot.writers.resize(1 + random() % 4);
  for (std::size_t i = 0; i < tensors; ++i) {
    slot.skip(random() % 2 == 0 ? (64 - slot.expected.size() % 64) % 64 : random() % 20);
    const bool is_cast = random() % 2 == 0;
    const DType from = is_cast ? kFloats[random() % 4] : static_cast<DType>(random() % kDTypes.size());
    Numbers shape;
    std::int64_t budget = most_elements >> random() % 8;
    for (std::size_t d = random() % 4; d > 0; --d) {
      std::int64_t size = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(budget));
      if (size > 32 && random() % 2 == 0) size -= size % 32;
      shape.push_back(d == 1 ? std::min<std::int64_t>(size, 5000) : std::min<std::int64_t>(size, 300));
      budget = std::max<std::int64_t>(1, budget / shape.back());
    }
    slot.append(from, is_cast ? kFloats[random() % 4] : from, shape, static_cast<int>(random() % 5), random);
  }
  return slot;
}

// Every writer packs its share. The slot must then be the naive one, and so must shares and totals.
void expect_packed(const SharedSlot& slot, const Processor& processor, int threads, bool aligned) {
  const std::size_t bytes = slot.expected.size();
  std::vector<std::byte> storage(bytes + 128, kUntouched);
  const std::size_t shift = (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64 + (aligned ? 0 : 5);
  const std::span<std::byte> packed = std::span(storage).subspan(shift, bytes);
  ThreadPool pool(threads);
  for (std::size_t number = 0; number < slot.writers.size(); ++number) {
    const SharedSlot::Writer& writer = slot.writers[number];
    const SharePlan plan(writer.boxes, bytes);
    const TileTotal untouched{.low = 1, .high = 2};
    std::vector<TileTotal> totals(tiles_of(bytes), untouched);
    pack_share(plan, writer.addresses, packed, number == 1 ? std::span<TileTotal>() : std::span(totals), pool,
               processor);
    for (std::size_t tile = 0; tile < totals.size(); ++tile) {
      const std::size_t begin = tile * kTileBytes, size = std::min(kTileBytes, bytes - begin);
      const auto owned = static_cast<std::size_t>(
          std::ranges::count(std::span(slot.owners).subspan(begin, size), static_cast<std::uint8_t>(number)));
      ASSERT_EQ(plan.shares()[tile], owned == size ? Share::kAll : owned > 0 ? Share::kSome : Share::kNone) << tile;
      ASSERT_EQ(totals[tile], owned == size && number != 1
                                  ? tile_total(std::span(slot.expected).subspan(begin, size), tile * kTilePages)
                                  : untouched)
          << tile;
    }
  }
  ASSERT_TRUE(same_bytes(slot.expected, packed));
  ASSERT_TRUE(std::ranges::all_of(std::span(storage).first(shift), [](std::byte b) { return b == kUntouched; }));
  ASSERT_TRUE(
      std::ranges::all_of(std::span(storage).subspan(shift + bytes), [](std::byte b) { return b == kUntouched; }));
}

class ShareOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  const Processor& processor() const { return *GetParam().processor; }
};

TEST_P(ShareOn, RandomBoxesOfSeveralWritersMakeTheSlot) {
  for (std::uint64_t seed = 1; seed <= (kIsSlow ? 4 : kIsInstrumented ? 12 : 40); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const SharedSlot slot = random_slot(seed, 2 + seed % 12, seed % 4 == 0 ? 300'000 : 10'000);
    for (const int threads : {1, 3}) ASSERT_NO_FATAL_FAILURE(expect_packed(slot, processor(), threads, threads == 1));
  }
}

// Above the size at which stores begin to bypass the caches.
TEST_P(ShareOn, LargeSlotsCutByColumns) {
  std::mt19937_64 random(7);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kF32, DType::kBF16},
                                 std::pair{DType::kI8, DType::kI8}, std::pair{DType::kF16, DType::kF64}}) {
    if (kIsSlow && from != DType::kF32) continue;
    for (const std::int64_t columns : {4096, 256, 96, 7}) {
      if (kIsInstrumented && columns != 96) continue;
      SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << ", " << columns << " columns");
      SharedSlot slot;
      slot.writers.resize(2);
      while (slot.expected.size() <= kFitsInCachesBytes) {
        const auto rows = static_cast<std::int64_t>(300'000 / columns);
        slot.append(from, to, {rows, columns}, static_cast<int>(random() % 4), random);
        slot.append(from, to, {rows / 8, 8, columns}, static_cast<int>(random() % 6), random);
        if (random() % 3 == 0) slot.skip(1 + random() % 7);
      }
      ASSERT_NO_FATAL_FAILURE(expect_packed(slot, processor(), 2, true));
    }
  }
}

// Rows longer than a tile, so that a tile has bytes of few of the boxes that lie side by side.
TEST_P(ShareOn, ManyBoxesSideBySideInLongRows) {
  for (std::uint64_t seed = 1; seed <= (kIsSlow ? 1 : kIsInstrumented ? 3 : 8); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    SharedSlot slot;
    slot.writers.resize(1 + seed % 3);
    const int depth = static_cast<int>(4 + seed % 4);
    slot.append(DType::kU8, DType::kU8, {12, 70'000 + static_cast<std::int64_t>(random() % 40'000)}, depth, random);
    slot.skip(random() % 100);
    slot.append(DType::kF32, DType::kBF16, {1, 90'000}, depth, random);
    slot.append(DType::kBF16, DType::kBF16, {3, 4, 40'000 + static_cast<std::int64_t>(random() % 9'000)}, depth,
                random);
    slot.append(DType::kF32, DType::kF32, {2, 50'000, 3}, depth, random);
    slot.skip(random() % 70'000);
    slot.append(DType::kI16, DType::kI16, {5, 64'000}, depth, random);
    for (const int threads : {1, 2}) ASSERT_NO_FATAL_FAILURE(expect_packed(slot, processor(), threads, threads == 1));
  }
}

// A row is a line longer than a tile, so that a tile may have the end and the beginning of the same box.
TEST_P(ShareOn, WholeTilesOfBoxesSideBySide) {
  std::mt19937_64 random(3);
  for (int round = 0; round < (kIsInstrumented ? 2 : 6); ++round) {
    SharedSlot slot;
    slot.writers.resize(1);
    slot.leaves_out = false;
    for (int i = 0; i < 6; ++i) slot.append(DType::kBF16, DType::kBF16, {15, 32'800}, 1 + i % 3, random);
    ASSERT_GT(slot.expected.size(), kFitsInCachesBytes);
    ASSERT_NO_FATAL_FAILURE(expect_packed(slot, processor(), 2, true));
  }
}

INSTANTIATE_TEST_SUITE_P(On, ShareOn, testing::ValuesIn(processors()), name_of_case);

TEST(Share, OfNothing) {
  const SharePlan none({}, 3 * kTileBytes + 1);
  EXPECT_EQ(none.shares().size(), 4U);
  ThreadPool pool(2);
  std::vector<std::byte> slot(3 * kTileBytes + 1, kUntouched);
  pack_share(none, {}, slot, {}, pool);
  EXPECT_TRUE(std::ranges::all_of(slot, [](std::byte b) { return b == kUntouched; }));
  pack_share(SharePlan({}, 0), {}, {}, {}, pool);
}

}  // namespace
}  // namespace bascule::inline v0::kernels
