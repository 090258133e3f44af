// TileTable: segments cut at the tiles of the slot, as blocks of a GPU walk them. Plain C++: made on the host when a
// plan is made, uploaded once, offsets only.
//
//   slot    |    tile 0     |    tile 1     |    tile 2     | tile 3, short |
//   tensors |     A: one run of bytes  |  B: one run  | c | d | E: strided  |
//   path    |   kCopy: A    | kCopy: A, B   |  kPieces: c, d, E ...         |
//
// A tile that is made of one or two runs of one type pair, cut on 16 bytes, has a path of its own: every thread finds
// its bytes by an addition. Any other tile is a list of pieces that warps take in turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels::cuda {

// How a tile is made from tensors, or tensors from it. Named by tensor, then slot. (A low-rank merge, W + (alpha/r) B
// A, will be a further path for tiles and a further kind of segment for pieces.)
enum class TilePath : std::uint32_t {
  kPieces,
  kCopy,
  kF32BF16,
  kF32F16,
  kBF16F32,
  kF16F32,
};

struct alignas(16) Tile {
  std::uint64_t offset[2] = {};  // in bytes from the tensor's address: what belongs to the tile's beginning; to `split`
  std::uint32_t tensor[2] = {};
  std::uint32_t split = 0;  // slot bytes from the tile's beginning that are run 0's; a multiple of 16
  TilePath path = TilePath::kPieces;
  std::uint32_t first_piece = 0;  // of kPieces
  std::uint32_t pieces = 0;
};

// A piece of a segment in one tile, at most 4 KiB of it: what a warp takes at a time.
//
// A run is bytes [begin, end) of the slot that are the tensor's own, from tensor_offset on: rows of boxes, too.
// Anything else is elements: for pack, bytes [begin, end) counted from the segment's slot_offset, the ends of which may
// cut an element; for unpack, elements [begin, end), of which each begins in the tile.
struct Piece {
  enum class Kind : std::uint32_t { kRun, kElements };
  Kind kind = Kind::kElements;
  std::uint32_t index = 0;  // of kElements: in TileTable::segments; of kRun: the tensor
  std::uint64_t begin = 0, end = 0;
  std::uint64_t tensor_offset = 0;  // of kRun
};

struct TileTable {
  std::vector<Tile> tiles;
  std::vector<Piece> pieces;
  std::vector<Segment> segments;  // those that pieces name; copies in the widest elements that fit
};

// As pack() and unpack() take them: see pack.h and unpack.h. Empty where `segments` are not so (for pack: sorted,
// without gap or overlap; for both: a tensor of the list, a known cast, within the slot) and `slot_bytes` is not 0.
TileTable pack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes);
TileTable unpack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes);

// A copy between equal types in elements of up to 8 bytes: the same bytes, fewer and wider steps. Others stay.
Segment widened(const Segment& segment);

}  // namespace bascule::inline v0::kernels::cuda
