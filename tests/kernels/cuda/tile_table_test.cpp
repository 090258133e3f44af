// The table that blocks walk, walked here by the host without a GPU.
#include <bascule/kernels/tile_table.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/boxes.h"
#include "kernels/layouts.h"
#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/scatter.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

struct PathTypes {
  DType tensor, slot;
};
PathTypes types_of(TilePath path) {
  switch (path) {
    case TilePath::kF32BF16: return {DType::kF32, DType::kBF16};
    case TilePath::kF32F16: return {DType::kF32, DType::kF16};
    case TilePath::kBF16F32: return {DType::kBF16, DType::kF32};
    case TilePath::kF16F32: return {DType::kF16, DType::kF32};
    default: return {DType::kU8, DType::kU8};
  }
}

std::vector<std::byte> element_of(const Segment& segment, const std::byte* tensor, std::uint64_t element) {
  const auto index = index_of(segment, element);
  std::int64_t at = 0;
  for (std::uint32_t d = 0; d < segment.rank; ++d) at += index[d] * segment.tensor_strides[d];
  const std::byte* source =
      tensor + segment.tensor_offset + at * static_cast<std::int64_t>(size_of(segment.tensor_dtype));
  std::vector<std::byte> value(size_of(segment.slot_dtype));
  if (const RunCast cast = plain_processor().run_cast(segment.tensor_dtype, segment.slot_dtype)) {
    cast(source, value.data(), 1);
  } else {
    std::memcpy(value.data(), source, value.size());
  }
  return value;
}

// The slot as the table makes it, every byte exactly once.
std::vector<std::byte> packed_by(const TileTable& table, const Tensors& tensors) {
  std::vector<std::byte> slot(tensors.slot_bytes);
  std::vector<int> written(tensors.slot_bytes);
  for (std::size_t t = 0; t < table.tiles.size(); ++t) {
    const Tile& tile = table.tiles[t];
    const std::uint64_t begin = t * kTileBytes;
    if (tile.path == TilePath::kTransposed) {
      const Transposed& all = table.transposed[tile.first_piece];
      EXPECT_TRUE(all.first_tile <= t && t < all.last_tile);
      const Segment& segment = table.segments[all.segment];
      const std::uint64_t bytes = size_of(segment.slot_dtype);
      for (std::uint64_t b = begin; b < begin + kTileBytes; ++b, ++written[b - 1])
        slot[b] = element_of(segment, tensors.addresses[segment.tensor],
                             (b - segment.slot_offset) / bytes)[(b - segment.slot_offset) % bytes];
      continue;
    }
    if (tile.path == TilePath::kPages) {
      EXPECT_LE(tile.pieces, kMostPagesPieces);
    } else if (tile.path != TilePath::kPieces) {
      const auto [tensor, slot_type] = types_of(tile.path);
      const std::uint64_t cuts[] = {0, tile.split, kTileBytes};
      for (int run = 0; run < 2; ++run) {
        const std::uint64_t bytes = cuts[run + 1] - cuts[run];
        const std::byte* source = tensors.addresses[tile.tensor[run]] + tile.offset[run];
        std::byte* target = slot.data() + begin + cuts[run];
        if (const RunCast cast = plain_processor().run_cast(tensor, slot_type)) {
          if (bytes > 0) cast(source, target, bytes / size_of(slot_type));
        } else if (bytes > 0) {
          std::memcpy(target, source, bytes);
        }
        for (std::uint64_t i = 0; i < bytes; ++i) ++written[begin + cuts[run] + i];
      }
      continue;
    }
    for (std::uint32_t p = 0; p < tile.pieces; ++p) {
      const Piece& piece = table.pieces[tile.first_piece + p];
      if (piece.kind == Piece::Kind::kRun) {
        EXPECT_LE(piece.end - piece.begin, 4096U);
        EXPECT_GE(piece.begin, begin);
        EXPECT_LE(piece.end, begin + kTileBytes);
        EXPECT_TRUE(tile.path != TilePath::kPages || piece.begin % 16 == 0);
        for (std::uint64_t b = piece.begin; b < piece.end; ++b, ++written[b - 1])
          slot[b] = tensors.addresses[piece.index][piece.tensor_offset + (b - piece.begin)];
        continue;
      }
      const Segment& segment = table.segments[piece.index];
      const std::uint64_t bytes = size_of(segment.slot_dtype);
      EXPECT_LE(piece.end - piece.begin, 4096U);
      EXPECT_GE(segment.slot_offset + piece.begin, begin);
      EXPECT_LE(segment.slot_offset + piece.end, begin + kTileBytes);
      for (std::uint64_t b = piece.begin; b < piece.end; ++b) {
        slot[segment.slot_offset + b] = element_of(segment, tensors.addresses[segment.tensor], b / bytes)[b % bytes];
        ++written[segment.slot_offset + b];
      }
    }
  }
  EXPECT_EQ(std::ranges::count(written, 1), static_cast<std::ptrdiff_t>(written.size()));
  return slot;
}

TEST(PackTable, MakesEveryByteOnceAndAsTheNaivePack) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Tensors tensors;
    tensors.add_run(DType::kBF16, DType::kBF16, 65536, random);  // ends in the middle of a tile
    tensors.add_run(DType::kBF16, DType::kBF16, 50'000, random);
    tensors.add_run(DType::kF32, DType::kBF16, 70'000, random);
    tensors.add(DType::kF32, DType::kF32, {30, 40}, {1, 0}, 1, true, 3, random);
    tensors.add_run(DType::kU8, DType::kU8, 1 + static_cast<std::int64_t>(random() % 40),
                    random);  // nothing is aligned after this
    tensors.add(DType::kF64, DType::kF16, {7, 11, 13}, {2, 0, 1}, 2, false, 1, random);
    tensors.add(DType::kF32, DType::kF32, {0, 4}, {0, 1}, 0, false, 0, random);
    tensors.add_run(DType::kF32, DType::kF32, 40'000, random);
    tensors.add_run(DType::kF16, DType::kF32, 33'333, random);
    tensors.add(DType::kBF16, DType::kBF16, {40, 50, 300}, {1, 0, 2}, 0, false, 2, random);  // rows that are runs
    const TileTable table = pack_table(tensors.segments, tensors.addresses.size(), tensors.slot_bytes);
    ASSERT_EQ(table.tiles.size(), tiles_of(tensors.slot_bytes));
    EXPECT_EQ(packed_by(table, tensors), naive_pack(tensors));
  }
}

TEST(PackTable, WholeTilesOfOneOrTwoRunsHaveAPathAndNoPieces) {
  std::mt19937_64 random(1);
  Tensors tensors;
  for (int i = 0; i < 8; ++i) tensors.add_run(DType::kF32, DType::kBF16, 3 * 32768 / 2, random);
  const TileTable table = pack_table(tensors.segments, 8, tensors.slot_bytes);
  EXPECT_TRUE(table.pieces.empty());
  for (const Tile& tile : table.tiles) EXPECT_EQ(tile.path, TilePath::kF32BF16);
}

std::vector<TilePath> paths_of(const TileTable& table) {
  std::vector<TilePath> paths;
  for (const Tile& tile : table.tiles) paths.push_back(tile.path);
  return paths;
}

TEST(PackTable, TilesOfManyRunsThatBeginAtMultiplesOf16BytesAreTakenByPages) {
  std::mt19937_64 random(2);
  Tensors tensors;
  for (int i = 0; i < 30; ++i) tensors.add_run(DType::kBF16, DType::kBF16, 3'008, random);
  tensors.add_run(DType::kBF16, DType::kBF16, 32'768 * 4 - 30 * 3'008, random);  // to the end of the fourth tile
  for (int i = 0; i < 128; ++i) tensors.add_run(DType::kBF16, DType::kBF16, 256, random);
  for (int i = 0; i < 256; ++i) tensors.add_run(DType::kBF16, DType::kBF16, 128, random);  // too many
  tensors.add_run(DType::kBF16, DType::kBF16, 3'001, random);
  for (int i = 0; i < 20; ++i) tensors.add_run(DType::kBF16, DType::kBF16, 3'008, random);  // off by 2 bytes
  const TileTable table = pack_table(tensors.segments, tensors.addresses.size(), tensors.slot_bytes);
  using enum TilePath;
  EXPECT_EQ(paths_of(table), (std::vector{kPages, kPages, kPages, kCopy, kPages, kPieces, kPieces, kPieces}));
  EXPECT_EQ(packed_by(table, tensors), naive_pack(tensors));
}

TEST(PackTable, WholeTilesOfTransposedMatricesHaveTheirPath) {
  std::mt19937_64 random(3);
  Tensors tensors;
  tensors.add_run(DType::kBF16, DType::kBF16, 8, random);
  tensors.add(DType::kBF16, DType::kBF16, {130, 512}, {1, 0}, 0, false, 0, random);  // 16 bytes to two tiles and more
  tensors.add(DType::kF32, DType::kBF16, {3, 100, 304}, {0, 2, 1}, 0, false, 0, random);  // three matrices
  tensors.add(DType::kBF16, DType::kBF16, {200, 500}, {1, 0}, 0, false, 0, random);       // rows of 1,000 bytes
  const TileTable table = pack_table(tensors.segments, tensors.addresses.size(), tensors.slot_bytes);
  using enum TilePath;
  EXPECT_EQ(paths_of(table),
            (std::vector{kPieces, kTransposed, kPieces, kTransposed, kPieces, kPieces, kPieces, kPieces}));
  ASSERT_EQ(table.transposed.size(), 2U);
  EXPECT_EQ(table.transposed[1].sums_before, 1U);
  EXPECT_EQ(packed_by(table, tensors), naive_pack(tensors));
}

TEST(PackTable, RefusesGapsOverlapsUnknownTensorsAndCasts) {
  std::mt19937_64 random(1);
  Tensors tensors;
  for (int i = 0; i < 3; ++i) tensors.add_run(DType::kF32, DType::kBF16, 1000, random);
  const auto is_refused = [&](auto change) {
    std::vector<Segment> segments = tensors.segments;
    change(segments);
    return pack_table(segments, 3, tensors.slot_bytes).tiles.empty();
  };
  EXPECT_FALSE(is_refused([](auto&) {}));
  EXPECT_TRUE(is_refused([](auto& segments) { segments[1].slot_offset += 2; }));
  EXPECT_TRUE(is_refused([](auto& segments) { segments[1].tensor = 3; }));
  EXPECT_TRUE(is_refused([](auto& segments) { segments[1].slot_dtype = DType::kI16; }));
  EXPECT_TRUE(is_refused([](auto& segments) { segments.pop_back(); }));
}

TEST(UnpackTable, ReadsWhatTheNaiveUnpackReads) {
  std::mt19937_64 random(7);
  Boxes boxes;
  const auto whole = boxes.append(DType::kBF16, {100'000}, random);
  boxes.read(whole, {0}, {100'000}, DType::kBF16, {0}, 0, 0);
  const auto matrix = boxes.append(DType::kBF16, {200, 512}, random);
  boxes.read(matrix, {0, 256}, {200, 256}, DType::kBF16, {0, 1}, 0, 0);
  boxes.read(matrix, {3, 1}, {100, 3}, DType::kF32, {1, 0}, 1, 1);
  boxes.skip(3, random);
  const auto odd = boxes.append(DType::kF32, {50'000}, random);
  boxes.read(odd, {0}, {50'000}, DType::kF32, {0}, 0, 0);
  boxes.sort();
  const TileTable table = unpack_table(boxes.segments, boxes.storages.size(), boxes.slot.size());
  ASSERT_EQ(table.tiles.size(), tiles_of(boxes.slot.size()));
  // Every byte of the slot is read as often as segments read it.
  std::vector<int> expected(boxes.slot.size()), found(boxes.slot.size());
  for (const Segment& segment : boxes.segments)
    for (std::uint64_t i = 0; i < segment.elements; ++i) {
      const auto index = index_of(segment, i);
      std::int64_t at = 0;
      for (std::uint32_t d = 0; d < segment.rank; ++d) at += index[d] * segment.slot_strides[d];
      for (std::uint64_t b = 0; b < size_of(segment.slot_dtype); ++b)
        ++expected[segment.slot_offset + static_cast<std::uint64_t>(at) * size_of(segment.slot_dtype) + b];
    }
  for (std::size_t t = 0; t < table.tiles.size(); ++t) {
    if (table.tiles[t].path != TilePath::kPieces)
      for (std::uint64_t b = 0; b < kTileBytes; ++b) ++found[t * kTileBytes + b];
    for (std::uint32_t p = 0; p < table.tiles[t].pieces; ++p) {
      const Piece& piece = table.pieces[table.tiles[t].first_piece + p];
      if (piece.kind == Piece::Kind::kRun) {
        for (std::uint64_t b = piece.begin; b < piece.end; ++b) ++found[b];
        continue;
      }
      const Segment& segment = table.segments[piece.index];
      for (std::uint64_t i = piece.begin; i < piece.end; ++i) {
        const auto index = index_of(segment, i);
        std::int64_t at = 0;
        for (std::uint32_t d = 0; d < segment.rank; ++d) at += index[d] * segment.slot_strides[d];
        const std::uint64_t begin = segment.slot_offset + static_cast<std::uint64_t>(at) * size_of(segment.slot_dtype);
        EXPECT_EQ(begin / kTileBytes, t);
        for (std::uint64_t b = 0; b < size_of(segment.slot_dtype); ++b) ++found[begin + b];
      }
    }
  }
  EXPECT_EQ(std::ranges::mismatch(expected, found).in1 - expected.begin(),
            static_cast<std::ptrdiff_t>(expected.size()));
}

TEST(Widened, KeepsTheBytesAndTakesTheWidestElementThatFits) {
  const Segment box{.tensor_dtype = DType::kBF16,
                    .slot_dtype = DType::kBF16,
                    .rank = 2,
                    .slot_offset = 64,
                    .elements = 3 * 8,
                    .shape = {3, 8},
                    .tensor_strides = {12, 1},
                    .slot_strides = {16, 1}};
  const Segment wide = widened(box);
  EXPECT_EQ(size_of(wide.slot_dtype), 8U);
  EXPECT_EQ(wide.elements, 6U);
  EXPECT_EQ(wide.shape[1], 2);
  EXPECT_EQ(wide.tensor_strides[0], 3);
  EXPECT_EQ(wide.slot_strides[0], 4);
  Segment odd = box;
  odd.tensor_strides[0] = 9;
  EXPECT_EQ(size_of(widened(odd).slot_dtype), 2U);
  odd = box;
  odd.slot_offset = 66;
  EXPECT_EQ(size_of(widened(odd).slot_dtype), 2U);
  odd = box;
  odd.tensor_dtype = DType::kF16;  // another type, although a known cast
  EXPECT_EQ(widened(odd).tensor_dtype, DType::kF16);
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
