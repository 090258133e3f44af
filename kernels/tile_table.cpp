#include <bascule/kernels/tile_table.h>

#include <algorithm>
#include <optional>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/gather.h>
#include <bascule/kernels/pack.h>
#include <bascule/kernels/scatter.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

constexpr std::uint64_t kPieceBytes = 4096;  // of slot, at most, per warp: small, so that few pieces occupy a block
constexpr std::uint64_t kChunkBytes = 16;    // of slot, which a thread moves at a time
constexpr std::uint64_t kRowBytes = 512;  // a row of a box with at least this many is a separate run: 16 bytes per lane

TilePath path_of(DType tensor, DType slot) {
  if (tensor == slot) return TilePath::kCopy;
  if (tensor == DType::kF32 && slot == DType::kBF16) return TilePath::kF32BF16;
  if (tensor == DType::kF32 && slot == DType::kF16) return TilePath::kF32F16;
  if (tensor == DType::kBF16 && slot == DType::kF32) return TilePath::kBF16F32;
  if (tensor == DType::kF16 && slot == DType::kF32) return TilePath::kF16F32;
  return TilePath::kPieces;
}

// Makes the tile from one or two runs, if `inside`, the segments with bytes in the tile, are exactly such runs.
std::optional<Tile> tile_of_runs(std::span<const Segment* const> inside, std::uint64_t begin,
                                 std::uint64_t slot_bytes) {
  if (begin + kTileBytes > slot_bytes || inside.empty() || inside.size() > 2) return std::nullopt;
  Tile tile;
  tile.path = path_of(inside[0]->tensor_dtype, inside[0]->slot_dtype);
  if (tile.path == TilePath::kPieces) return std::nullopt;
  std::uint64_t at = begin;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const Segment& run = *inside[i];
    const std::uint64_t element_bytes = size_of(run.slot_dtype);
    if (!run.is_run() || run.arithmetic != kNoArithmetic || path_of(run.tensor_dtype, run.slot_dtype) != tile.path)
      return std::nullopt;
    if (i == 0 ? run.slot_offset > at : run.slot_offset != at) return std::nullopt;
    if ((at - run.slot_offset) % element_bytes != 0) return std::nullopt;
    const std::uint64_t end = std::min(slot_end_of(run), begin + kTileBytes);
    if ((end - begin) % kChunkBytes != 0) return std::nullopt;
    tile.tensor[i] = run.tensor;
    tile.offset[i] = run.tensor_offset + (at - run.slot_offset) / element_bytes * size_of(run.tensor_dtype);
    if (i == 0) tile.split = static_cast<std::uint32_t>(end - begin);
    at = end;
  }
  if (at != begin + kTileBytes) return std::nullopt;
  return tile;
}

// Whether the tile lies in one run to which a product is added, and rows begin at multiples of 16 bytes.
bool is_product(std::span<const Segment* const> inside, std::uint64_t begin, std::span<const Arithmetic> arithmetic) {
  if (inside.size() != 1 || inside[0]->arithmetic == kNoArithmetic) return false;
  const Segment& run = *inside[0];
  const Arithmetic& wanted = arithmetic[run.arithmetic];
  return run.is_run() && wanted.rank > 0 && run.slot_offset <= begin && begin + kTileBytes <= slot_end_of(run) &&
         run.slot_offset % kChunkBytes == 0 && wanted.columns % (kChunkBytes / size_of(run.slot_dtype)) == 0 &&
         run.elements <= UINT32_MAX && wanted.columns <= UINT32_MAX / 8 && wanted.right.column_stride == 1;
}

// Whether the tile lies in one segment of transposed matrices, of at least 16 rows of at least 256 bytes, which begin
// at multiples of 16 bytes.
bool is_transposed(std::span<const Segment* const> inside, std::uint64_t begin) {
  if (inside.size() != 1) return false;
  const Segment& all = *inside[0];
  if (all.arithmetic != kNoArithmetic || all.slot_offset > begin || slot_end_of(all) < begin + kTileBytes ||
      all.rank < 2 || all.rank > 3)
    return false;
  const std::uint64_t tensor_bytes = size_of(all.tensor_dtype), slot_bytes = size_of(all.slot_dtype);
  const bool copies = all.tensor_dtype == all.slot_dtype && (tensor_bytes == 2 || tensor_bytes == 4);
  const bool narrows =
      all.tensor_dtype == DType::kF32 && (all.slot_dtype == DType::kBF16 || all.slot_dtype == DType::kF16);
  const std::uint32_t d = all.rank - 2;
  const std::int64_t rows = all.shape[d], columns = all.shape[d + 1];
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * slot_bytes;
  return (copies || narrows) && all.tensor_strides[d] == 1 && all.slot_strides[d + 1] == 1 &&
         all.slot_strides[d] == columns && (d == 0 || all.slot_strides[0] == rows * columns) && rows >= 16 &&
         row_bytes >= 256 && row_bytes % kChunkBytes == 0 && all.slot_offset % kChunkBytes == 0;
}

// Adds a tile of segment `segment`.
Tile transposed_tile(TileTable& table, std::uint32_t segment) {
  const std::uint64_t number = table.tiles.size();
  std::vector<Transposed>& all = table.transposed;
  if (all.empty() || all.back().segment != segment) {
    const Segment& of = table.segments[segment];
    const bool copies = of.tensor_dtype == of.slot_dtype;
    const DType copied = size_of(of.slot_dtype) == 2 ? DType::kBF16 : DType::kF32;
    all.push_back(
        {.first_tile = number,
         .last_tile = number,
         .sums_before = all.empty() ? 0 : all.back().sums_before + all.back().last_tile - all.back().first_tile,
         .segment = segment,
         .tensor_dtype = copies ? copied : of.tensor_dtype,
         .slot_dtype = copies ? copied : of.slot_dtype});
  }
  ++all.back().last_tile;
  return {.path = TilePath::kTransposed, .first_piece = static_cast<std::uint32_t>(all.size() - 1)};
}

// Whether warps can take the pages of a tile of these pieces.
bool is_pages(std::span<const Piece> pieces, std::uint64_t begin, std::uint64_t slot_bytes) {
  return begin + kTileBytes <= slot_bytes && pieces.size() <= kMostPagesPieces &&
         std::ranges::all_of(pieces, [](const Piece& piece) {
           return piece.kind == Piece::Kind::kRun && piece.begin % kChunkBytes == 0;
         });
}

bool fits(const Segment& segment, std::size_t tensors) {
  return segment.rank <= kMaxRank && segment.tensor < tensors && can_cast(segment.tensor_dtype, segment.slot_dtype);
}

// Adds elements, in steps of at most `step`.
void add_elements(TileTable& table, std::uint32_t segment, std::uint64_t begin, std::uint64_t end, std::uint64_t step) {
  for (; begin < end; begin += step)
    table.pieces.push_back({.index = segment, .begin = begin, .end = std::min(end, begin + step)});
}

// Whether the segment consists of rows that have the same bytes on both sides and are each long enough for a piece. A
// run counts as one row.
bool is_rows(const Segment& segment) {
  if (segment.tensor_dtype != segment.slot_dtype || segment.arithmetic != kNoArithmetic) return false;
  if (segment.is_run()) return true;
  const std::uint32_t inner = segment.rank - 1;
  return segment.tensor_strides[inner] == 1 && segment.slot_strides[inner] == 1 &&
         static_cast<std::uint64_t>(segment.shape[inner]) * size_of(segment.slot_dtype) >= kRowBytes;
}

// Adds the part of a segment of rows that lies in bytes [begin, end) of the slot, where its rows have rising
// addresses.
void add_rows(TileTable& table, const Segment& segment, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t element_bytes = size_of(segment.slot_dtype);
  const std::uint64_t row_elements =
      segment.is_run() ? segment.elements : static_cast<std::uint64_t>(segment.shape[segment.rank - 1]);
  // The row of the first element after `begin`, or the row before it, may reach into the tile.
  const std::uint64_t first = elements_before(segment, begin);
  for (std::uint64_t row = (first > 0 ? first - 1 : 0) / row_elements; row * row_elements < segment.elements; ++row) {
    std::int64_t in_tensor = 0, in_slot = 0;  // elements
    const auto index = index_of(segment, row * row_elements);
    for (std::uint32_t d = 0; d < segment.rank && !segment.is_run(); ++d) {
      in_tensor += index[d] * segment.tensor_strides[d];
      in_slot += index[d] * segment.slot_strides[d];
    }
    const std::uint64_t row_begin = segment.slot_offset + static_cast<std::uint64_t>(in_slot) * element_bytes;
    const std::uint64_t tensor_begin =
        segment.tensor_offset + static_cast<std::uint64_t>(in_tensor) * element_bytes;  // may pass through 2^64
    if (row_begin >= end) return;
    const std::uint64_t to = std::min(end, row_begin + row_elements * element_bytes);
    for (std::uint64_t at = std::max(begin, row_begin); at < to;) {
      // Rows are cut at multiples of kPieceBytes, to preserve alignment.
      const std::uint64_t next = std::min(to, row_begin + ((at - row_begin) / kPieceBytes + 1) * kPieceBytes);
      table.pieces.push_back({.kind = Piece::Kind::kRun,
                              .index = segment.tensor,
                              .begin = at,
                              .end = next,
                              .tensor_offset = tensor_begin + (at - row_begin)});
      at = next;
    }
  }
}

// Walks the tiles in order, each with the segments that reach into it.
template <typename End, typename AddPieces>
void cut(TileTable& table, std::span<const Segment> segments, std::uint64_t slot_bytes, bool packs, End end_of,
         AddPieces add_pieces) {
  std::vector<const Segment*> inside;
  std::vector<std::uint32_t> numbers(segments.size(), UINT32_MAX);  // indices into table.segments
  const auto number_of = [&](const Segment& segment) {
    std::uint32_t& number = numbers[static_cast<std::size_t>(&segment - segments.data())];
    if (number == UINT32_MAX) {
      number = static_cast<std::uint32_t>(table.segments.size());
      table.segments.push_back(widened(segment));
    }
    return number;
  };
  std::size_t next = 0;  // the first segment that begins after the tile
  for (std::uint64_t begin = 0; begin < slot_bytes; begin += kTileBytes) {
    const std::uint64_t end = std::min(begin + kTileBytes, slot_bytes);
    std::erase_if(inside, [&](const Segment* segment) { return end_of(*segment) <= begin; });
    for (; next < segments.size() && segments[next].slot_offset < end; ++next)
      if (segments[next].elements > 0) inside.push_back(&segments[next]);
    Tile tile;
    if (std::optional<Tile> runs = tile_of_runs(inside, begin, slot_bytes)) {
      tile = *runs;
    } else if (is_product(inside, begin, table.arithmetic)) {
      tile.path = TilePath::kProduct;
      tile.first_piece = number_of(*inside[0]);
    } else if (packs && is_transposed(inside, begin)) {
      tile = transposed_tile(table, number_of(*inside[0]));
    } else {
      tile.first_piece = static_cast<std::uint32_t>(table.pieces.size());
      for (const Segment* segment : inside) {
        if (is_rows(*segment)) {
          add_rows(table, *segment, begin, end);
        } else {
          add_pieces(*segment, number_of(*segment), begin, end);
        }
      }
      tile.pieces = static_cast<std::uint32_t>(table.pieces.size()) - tile.first_piece;
      if (packs && is_pages(std::span(table.pieces).last(tile.pieces), begin, slot_bytes)) tile.path = TilePath::kPages;
    }
    table.tiles.push_back(tile);
  }
}

}  // namespace

Segment widened(const Segment& segment) {
  const std::uint64_t bytes = size_of(segment.slot_dtype);
  if (segment.tensor_dtype != segment.slot_dtype || segment.arithmetic != kNoArithmetic || segment.elements == 0 ||
      segment.rank == 0)
    return segment;
  const std::uint32_t inner = segment.rank - 1;
  if (segment.tensor_strides[inner] != 1 || segment.slot_strides[inner] != 1) return segment;
  for (const auto& [wide, dtype] :
       {std::pair<std::uint64_t, DType>{8, DType::kU64}, {4, DType::kU32}, {2, DType::kU16}}) {
    if (wide <= bytes) break;
    const auto factor = static_cast<std::int64_t>(wide / bytes);
    bool divides =
        segment.shape[inner] % factor == 0 && segment.tensor_offset % wide == 0 && segment.slot_offset % wide == 0;
    for (std::uint32_t d = 0; d < inner; ++d)
      divides = divides && segment.tensor_strides[d] % factor == 0 && segment.slot_strides[d] % factor == 0;
    if (!divides) continue;
    Segment wider = segment;
    wider.tensor_dtype = wider.slot_dtype = dtype;
    wider.elements /= static_cast<std::uint64_t>(factor);
    wider.shape[inner] /= factor;
    for (std::uint32_t d = 0; d < inner; ++d) {
      wider.tensor_strides[d] /= factor;
      wider.slot_strides[d] /= factor;
    }
    return wider;
  }
  return segment;
}

TileTable pack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                     std::span<const Arithmetic> arithmetic) {
  std::uint64_t at = 0;
  for (const Segment& segment : segments) {
    if (segment.slot_offset != at || !fits(segment, tensors) || !can_compute(segment, arithmetic, tensors)) return {};
    at = slot_end_of(segment);
  }
  if (at != slot_bytes) return {};
  TileTable table;
  table.arithmetic.assign(arithmetic.begin(), arithmetic.end());
  cut(table, segments, slot_bytes, /*packs=*/true, slot_end_of,
      [&](const Segment& segment, std::uint32_t number, std::uint64_t begin, std::uint64_t end) {
        const std::uint64_t from = std::max(begin, segment.slot_offset) - segment.slot_offset;
        const std::uint64_t to = std::min(end, slot_end_of(segment)) - segment.slot_offset;
        // Pieces are cut at multiples of every element size, so that only a tile's border splits an element.
        const std::uint64_t first = std::min(to, (from + kPieceBytes) / kPieceBytes * kPieceBytes);
        add_elements(table, number, from, first, kPieceBytes);
        add_elements(table, number, first, to, kPieceBytes);
      });
  return table;
}

TileTable unpack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes) {
  std::uint64_t before = 0;
  for (const Segment& segment : segments) {
    if (segment.slot_offset < before || slot_reach_of(segment) > slot_bytes || !fits(segment, tensors) ||
        !can_cast(segment.slot_dtype, segment.tensor_dtype) || segment.arithmetic != kNoArithmetic)
      return {};
    before = segment.slot_offset;
  }
  TileTable table;
  cut(table, segments, slot_bytes, /*packs=*/false, slot_reach_of,
      [&](const Segment&, std::uint32_t number, std::uint64_t begin, std::uint64_t end) {
        const Segment& wide = table.segments[number];
        const std::uint64_t first = elements_before(wide, begin), last = elements_before(wide, end);
        add_elements(table, number, first, last, kPieceBytes / size_of(wide.slot_dtype));
      });
  return table;
}

}  // namespace bascule::inline v0::kernels::cuda
