// TileTable: segments cut at the slot's tiles, for a GPU's blocks. It is plain C++, made on the host with the plan and
// uploaded once; it holds offsets and no addresses.
//
//   slot    |    tile 0     |    tile 1     |    tile 2     | tile 3, short |
//   tensors |     A: one run of bytes  |  B: one run  | c | d | E: strided  |
//   path    |   kCopy: A    | kCopy: A, B   |  kPieces: c, d, E ...         |
//
// A tile that consists of one or two runs with the same pair of types, cut at a multiple of 16 bytes, takes a fast
// path: every thread finds its bytes by an addition. Any other tile is a list of pieces that warps take in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels::cuda {

inline constexpr std::uint32_t kMostPagesPieces = 128;  // of a tile of TilePath::kPages

// How a tile is made from tensors, or tensors from a tile. A name gives the tensor's type, then the slot's.
enum class TilePath : std::uint32_t {
  kPieces,
  kCopy,
  kF32BF16,
  kF32F16,
  kBF16F32,
  kF16F32,
  kPages,       // pieces of Kind::kRun, at most kMostPagesPieces, that begin at multiples of 16 bytes; only for pack
  kProduct,     // within one run, to which a product is added; only for pack
  kTransposed,  // within one segment, of matrices whose columns are contiguous in the tensor; only for pack
};

struct alignas(16) Tile {
  std::uint64_t offset[2] = {};  // bytes from the tensor's address, for the tile's beginning and for `split`
  std::uint32_t tensor[2] = {};
  std::uint32_t split = 0;  // the tile's bytes that belong to run 0; a multiple of 16
  TilePath path = TilePath::kPieces;
  std::uint32_t first_piece = 0;  // for kPieces, kPages; kProduct: the index in segments; kTransposed: in transposed
  std::uint32_t pieces = 0;
};

// The part of a segment that a warp takes at a time: at most 4 KiB, within one tile.
//
// kRun is a run or a row of a box: bytes [begin, end) of the slot equal the tensor's bytes at tensor_offset. Everything
// else is kElements. For pack, begin and end of such a piece are byte offsets from the segment's slot_offset, and
// either may fall inside an element. For unpack they are indices of elements, those that begin in the tile.
struct Piece {
  enum class Kind : std::uint32_t { kRun, kElements };
  Kind kind = Kind::kElements;
  std::uint32_t index = 0;  // kElements: in TileTable::segments; kRun: the tensor
  std::uint64_t begin = 0, end = 0;
  std::uint64_t tensor_offset = 0;  // for kRun
};

// The tiles [first_tile, last_tile) of one transposed segment.
struct Transposed {
  std::uint64_t first_tile = 0, last_tile = 0;
  std::uint64_t sums_before = 0;                               // such tiles of earlier segments
  std::uint32_t segment = 0;                                   // the index in TileTable::segments
  DType tensor_dtype = DType::kF32, slot_dtype = DType::kF32;  // for copies BF16 or F32, by their size
};

struct TileTable {
  std::vector<Tile> tiles;
  std::vector<Piece> pieces;
  std::vector<Segment> segments;  // the ones that pieces refer to; copies use the widest elements that fit
  std::vector<Arithmetic> arithmetic;
  std::vector<Transposed> transposed;
};

// These make the tables for pack() and unpack(), from `segments` as pack.h and unpack.h describe them. If `slot_bytes`
// is not 0, both return an empty table for segments with an unknown tensor or cast, or bytes outside the slot;
// pack_table() also does so if they are unsorted, have gaps or overlaps, or need arithmetic that cannot be done, and
// unpack_table() if they need any.
TileTable pack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                     std::span<const Arithmetic> arithmetic = {});
TileTable unpack_table(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes);

// Turns a copy between equal types into one with elements of up to 8 bytes, which moves the same bytes in fewer, wider
// steps. Returns any other segment unchanged.
Segment widened(const Segment& segment);

}  // namespace bascule::inline v0::kernels::cuda
