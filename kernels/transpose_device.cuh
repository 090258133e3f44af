// Packs tiles within matrices that lie transposed in their tensors (TilePath::kTransposed). An element's neighbour in
// the slot is far away in the tensor, so a tile alone would read a whole sector of memory for each of its elements. So
// blocks take squares of 64 rows, which are adjacent in the tensor, and as many columns as 512 bytes of slot have:
//
//   tensor, from memory          shared memory           slot, to memory
//   16 bytes: 8 (or 4) rows      a row: 512 bytes,       512 bytes of a row
//   of a column                  in units of 4 bytes
//
// A warp loads 128 units at a time, of `kGroups` groups of rows, and stores them with no two in one bank: the 16-byte
// chunks of a row are permuted by an XOR with a number of the row's group. A row is read back in whole chunks.
//
// A square has parts of many pages. The digest's sums over a page are sums over its words (digest_function.h), so each
// part is added to the page's sums in device memory. Once all squares are done, finish_pages() makes the hashes.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_table.h>
#include <bascule/kernels/element_device.cuh>

namespace bascule::inline v0::kernels::cuda {

// A square in the block's shared memory.
struct Square {
  static constexpr std::uint32_t kRows = 64, kRowBytes = 512;
  uint4 rows[kRows][kRowBytes / 16];
};

// Packs elements of type kTensor as kSlot.
template <DType kTensor, DType kSlot>
class PackSquares {
 public:
  __device__ PackSquares(Square& shared, const std::uint64_t* block_keys) : shared_(shared), keys_(block_keys) {}

  // Packs the block's squares of those that reach into bytes [begin, end) of the slot, and of them only those bytes.
  // The segment has a rank of 2, or of 3 with a matrix for each index of the first dimension.
  __device__ void run(const Segment& segment, std::byte* const* addresses, std::byte* slot, std::uint64_t begin,
                      std::uint64_t end, std::uint32_t block, std::uint32_t blocks, PageSums* sums) {
    const std::uint32_t d = segment.rank - 2;
    rows_ = static_cast<std::uint64_t>(segment.shape[d]);
    columns_ = static_cast<std::uint64_t>(segment.shape[d + 1]);
    column_step_ = segment.tensor_strides[d + 1] * kTensorBytes;
    const std::int64_t matrix_step = d == 0 ? 0 : segment.tensor_strides[0] * std::int64_t{kTensorBytes};
    const std::byte* const tensor = addresses[segment.tensor] + segment.tensor_offset;
    const std::uint64_t all = reinterpret_cast<std::uintptr_t>(tensor) | static_cast<std::uint64_t>(column_step_) |
                              static_cast<std::uint64_t>(matrix_step);
    const bool aligned = all % 16 == 0;
    begin_ = begin, end_ = end;
    slot_ = slot;
    sums_ = sums;
    // Counts of squares and of rows of squares have 32 bits: 64-bit divisions would take as long as the pack.
    const std::uint64_t row_bytes = columns_ * kSlotBytes;
    const auto across = static_cast<std::uint32_t>((row_bytes + kRowBytes - 1) / kRowBytes);
    const auto down = static_cast<std::uint32_t>((rows_ + kRows - 1) / kRows);  // of one matrix
    const auto band_of = [&](std::uint64_t byte) {                              // counted through all matrices
      const std::uint64_t row = (byte - segment.slot_offset) / row_bytes, matrix = row / rows_;
      return static_cast<std::uint32_t>(matrix * down + (row - matrix * rows_) / kRows);
    };
    const std::uint32_t first = band_of(begin), bands = band_of(end - 1) + 1 - first;
#pragma unroll 1
    for (std::uint32_t square = block; square < bands * across; square += blocks) {
      // Blocks that run at the same time have squares beside and below one another, adjacent in slot and tensor.
      const std::uint32_t before = square / (kBandsTogether * across) * kBandsTogether;
      const std::uint32_t together = min(bands - before, kBandsTogether), within = square - before * across;
      const std::uint32_t side = within / together, band = first + before + within - side * together;
      const std::uint32_t matrix = band / down;
      row_ = std::uint64_t{band - matrix * down} * kRows;
      column_ = std::uint64_t{side} * kColumns;
      row_in_slot_ = segment.slot_offset + (matrix * rows_ + row_) * row_bytes + column_ * kSlotBytes;
      const std::byte* const from = tensor + std::int64_t{matrix} * matrix_step +
                                    static_cast<std::int64_t>(row_ * kTensorBytes) +
                                    static_cast<std::int64_t>(column_) * column_step_;
      __syncthreads();  // for readers of the last square
      if (aligned && row_ + kRows <= rows_ && column_ + kColumns <= columns_) {
        load_whole(from);
      } else {
        load_part(from);
      }
      __syncthreads();
      store(row_bytes);
      if (sums_ != nullptr && add_products(row_bytes, 0)) add_products(row_bytes, 1);
    }
  }

 private:
  static constexpr std::uint32_t kRows = Square::kRows, kRowBytes = Square::kRowBytes, kBandsTogether = 8;
  static constexpr std::uint32_t kTensorBytes = kTensor == DType::kF32 ? 4 : 2;
  static constexpr std::uint32_t kSlotBytes = kSlot == DType::kF32 ? 4 : 2;
  static constexpr std::uint32_t kColumns = kRowBytes / kSlotBytes;
  static constexpr std::uint32_t kOfUnit = 4 / kSlotBytes;     // columns in a unit of 4 bytes
  static constexpr std::uint32_t kVector = 16 / kTensorBytes;  // rows that a thread loads at once
  static constexpr std::uint32_t kGroups = 32 / kVector;       // of a warp: 32 rows
  static constexpr std::uint32_t kUnits = 32 / kGroups;        // of a warp, in each row
  static constexpr std::uint32_t kLoads = kRows * (kRowBytes / 4) / kVector / kThreads;
  static constexpr std::uint32_t kUnitsApart = kRowBytes / 4 / kLoads;  // of a thread's loads

  // The place of chunk `chunk` of a row.
  static __device__ std::uint32_t permuted(std::uint32_t row, std::uint32_t chunk) {
    return chunk ^ (row / kVector % kGroups * (kUnits / 4));
  }
  __device__ std::uint32_t& unit(std::uint32_t row, std::uint32_t number) const {
    return reinterpret_cast<std::uint32_t*>(&shared_.rows[row][permuted(row, number / 4)])[number % 4];
  }

  // The thread's first row, and the first unit that it loads. Two warps lie below one another.
  static __device__ std::uint32_t first_row() { return threadIdx.x / 32 % 2 * 32 + threadIdx.x % kGroups * kVector; }
  static __device__ std::uint32_t first_unit() { return threadIdx.x / 64 * kUnits + threadIdx.x % 32 / kGroups; }

  __device__ void load_whole(const std::byte* square) const {
    const std::uint32_t row = first_row(), first = first_unit();
    const std::byte* const from = square + row * kTensorBytes + first * kOfUnit * column_step_;
    uint4 vectors[kLoads][kOfUnit];
#pragma unroll
    for (std::uint32_t i = 0; i < kLoads; ++i)
#pragma unroll
      for (std::uint32_t c = 0; c < kOfUnit; ++c)
        vectors[i][c] = __ldcs(reinterpret_cast<const uint4*>(from + (i * kUnitsApart * kOfUnit + c) * column_step_));
#pragma unroll
    for (std::uint32_t i = 0; i < kLoads; ++i)
#pragma unroll
      for (std::uint32_t r = 0; r < kVector; ++r) unit(row + r, first + i * kUnitsApart) = unit_from(vectors[i], r);
  }

  // For columns that are not aligned, and squares that reach past the matrix: their other places get no values.
  __device__ void load_part(const std::byte* square) const {
    const std::uint32_t row = first_row();
#pragma unroll 1
    for (std::uint32_t r = row; r < row + kVector && row_ + r < rows_; ++r) {
#pragma unroll 1
      for (std::uint32_t number = first_unit(); number < kRowBytes / 4; number += kUnitsApart) {
        std::uint32_t values[2] = {};
        for (std::uint32_t c = 0; c < kOfUnit && column_ + number * kOfUnit + c < columns_; ++c)
          values[c] = static_cast<std::uint32_t>(
              load_element(square + r * kTensorBytes + (number * kOfUnit + c) * column_step_, kTensorBytes));
        unit(r, number) = unit_of(values[0], values[1]);
      }
    }
  }

  static __device__ std::uint32_t word(const uint4& vector, std::uint32_t i) {
    return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
  }
  // The slot's 4 bytes of row `r` of the vectors.
  static __device__ std::uint32_t unit_from(const uint4 (&vectors)[kOfUnit], std::uint32_t r) {
    if constexpr (kTensorBytes == 4) return unit_of(word(vectors[0], r), word(vectors[kOfUnit - 1], r));
    return __byte_perm(word(vectors[0], r / 2), word(vectors[kOfUnit - 1], r / 2), r % 2 == 0 ? 0x5410 : 0x7632);
  }
  // The same of elements of one column, or of two.
  static __device__ std::uint32_t unit_of(std::uint32_t first, std::uint32_t second) {
    if constexpr (kTensorBytes == 2) return __byte_perm(first, second, 0x5410);
    if constexpr (kSlot == DType::kBF16) return two_bf16(first, second);
    if constexpr (kSlot == DType::kF16) return two_f16(first, second);
    return first;
  }

  // A warp has four rows, 16 bytes per lane. All borders are multiples of 16 bytes.
  static __device__ std::uint32_t row_of_warp(std::uint32_t i) { return threadIdx.x / 32 * 4 + i; }
  __device__ bool is_inside(std::uint32_t row, std::uint64_t at) const {
    return row_ + row < rows_ && column_ + threadIdx.x % 32 * (16 / kSlotBytes) < columns_ && at >= begin_ && at < end_;
  }
  __device__ uint4 words(std::uint32_t row) const { return shared_.rows[row][permuted(row, threadIdx.x % 32)]; }

  __device__ void store(std::uint64_t row_bytes) const {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t row = row_of_warp(i);
      const std::uint64_t at = row_in_slot_ + row * row_bytes + threadIdx.x % 32 * 16;
      if (is_inside(row, at)) __stcs(reinterpret_cast<uint4*>(slot_ + at), words(row));
    }
  }

  // Adds the rows' parts of the pages in which they begin or, with `after` = 1, of the pages after these. Returns
  // whether any row goes on after that page.
  __device__ bool add_products(std::uint64_t row_bytes, std::uint32_t after) const {
    std::uint64_t sums[8] = {};
    bool goes_on = false;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t row = row_of_warp(i);
      const std::uint64_t begin = row_in_slot_ + row * row_bytes, at = begin + threadIdx.x % 32 * 16;
      if (!is_inside(row, at)) continue;
      const auto pages_on = static_cast<std::uint32_t>(at / kPageBytes - begin / kPageBytes);
      goes_on = goes_on || pages_on > after;
      if (pages_on != after) continue;
      const std::uint64_t* const keys = keys_ + static_cast<std::uint32_t>(at) % kPageBytes / 8;
      sums[2 * i] = products(words(row), keys);
      sums[2 * i + 1] = products(words(row), keys + kKeyShift);
    }
    // Lane 4 * (2 * i + half) has that sum of row i.
    const std::uint64_t sum = sum_of_lanes(sums), row = row_of_warp(threadIdx.x % 32 / 8);
    PageSums& page = sums_[(row_in_slot_ + row * row_bytes) / kPageBytes + after - begin_ / kPageBytes];
    if (threadIdx.x % 4 == 0 && sum != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(threadIdx.x / 4 % 2 == 0 ? &page.first : &page.second),
                static_cast<unsigned long long>(sum));
    return __any_sync(~0U, goes_on);
  }
  static __device__ std::uint64_t products(const uint4& words, const std::uint64_t* of_words) {
    const uint4 keys = *reinterpret_cast<const uint4*>(of_words);
    return static_cast<std::uint64_t>(words.x + keys.x) * (words.y + keys.y) +
           static_cast<std::uint64_t>(words.z + keys.z) * (words.w + keys.w);
  }

  Square& shared_;
  const std::uint64_t* keys_;
  std::uint64_t rows_ = 0, columns_ = 0;  // of a matrix
  std::int64_t column_step_ = 0;          // bytes of the tensor
  std::uint64_t begin_ = 0, end_ = 0;
  std::byte* slot_ = nullptr;
  PageSums* sums_ = nullptr;  // of the pages, starting with begin_; null: no digest is wanted
  // Of the square:
  std::uint64_t row_ = 0, column_ = 0, row_in_slot_ = 0;
};

// Starts with tile `first_tile`, and skips tiles of other paths and types.
template <DType kTensor, DType kSlot>
__global__ void __launch_bounds__(kThreads, 2)
    pack_squares(TableView table, std::byte* slot, std::uint64_t first_tile, PageSums* sums) {
  const Tile tile = table.tiles[first_tile + blockIdx.x];
  if (tile.path != TilePath::kTransposed) return;
  const Transposed transposed = table.transposed[tile.first_piece];
  if (transposed.tensor_dtype != kTensor || transposed.slot_dtype != kSlot) return;
  const std::uint64_t begin = max(first_tile, transposed.first_tile);
  const std::uint64_t end = min(first_tile + gridDim.x, transposed.last_tile);
  if (sums != nullptr) sums += (transposed.sums_before + begin - transposed.first_tile) * kTilePages;
  const std::uint64_t* const block_keys = make_block_keys();
  __shared__ Square square;
  PackSquares<kTensor, kSlot>(square, block_keys)
      .run(table.segments[transposed.segment], table.addresses, slot, begin * kTileBytes, end * kTileBytes,
           static_cast<std::uint32_t>(first_tile + blockIdx.x - begin), static_cast<std::uint32_t>(end - begin), sums);
}

// Makes the hashes of the pages of `tiles` tiles, starting with `first_tile`, and gives them to the digest. A block has
// 32 tiles, a thread a page.
__global__ void __launch_bounds__(kThreads) finish_pages(TableView table, std::uint64_t first_tile, std::uint64_t tiles,
                                                         const PageSums* sums, DigestOutput target) {
  const std::uint64_t number = std::uint64_t{blockIdx.x} * (kThreads / kTilePages) + threadIdx.x / kTilePages;
  const std::uint64_t tile = first_tile + number, page = threadIdx.x % kTilePages;
  const bool is_ours = number < tiles && table.tiles[tile].path == TilePath::kTransposed;
  Digest hash;
  if (is_ours) {
    const Transposed transposed = table.transposed[table.tiles[tile].first_piece];
    const PageSums of_page = sums[(transposed.sums_before + tile - transposed.first_tile) * kTilePages + page];
    hash = mix128(of_page.first, of_page.second, target.first_page + tile * kTilePages + page);
  }
  const auto pages = static_cast<std::uint64_t>(__syncthreads_count(is_ours));
  if (pages == 0) return;
  const auto add_lanes = [&](int offset) {
    hash.low += __shfl_xor_sync(~0U, hash.low, offset);
    hash.high += __shfl_xor_sync(~0U, hash.high, offset);
  };
  for (int offset = kTilePages / 2; offset > 0; offset /= 2) add_lanes(offset);
  if (is_ours && page == 0 && target.of_tiles.totals != nullptr)
    *reinterpret_cast<ulonglong2*>(target.of_tiles.totals + tile) = {hash.low, hash.high};
  add_lanes(kTilePages);
  target.of_tiles = {};
  give_hashes(hash, 0, pages / kTilePages, target);
}

}  // namespace bascule::inline v0::kernels::cuda
