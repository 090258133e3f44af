// Ranges of one region's bytes: what a worker's plan reads, which tiles it reads whole, and which of these are wrong.
//
//   tiles    |    tile 0     |    tile 1     |    tile 2     | tile 3, short |
//   ranges     [-- a --) [---------------- b -----------)  [------ c -------)
//   whole                    |    tile 1     |                | tile 3, short |
//   touched  |    tile 0     |    tile 1     |    tile 2     | tile 3, short |
//
// A list of ranges is sorted, and its ranges neither overlap nor touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/kernels/segment.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/regions.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMostRanges = std::size_t{1} << 24;  // of one plan; 256 MiB

// Returns the bytes of the slot that these segments read. Each segment must be a box of a contiguous tensor in the
// slot, as in Plan::scatter(). Returns RESOURCE_EXHAUSTED for segments of more than kMostRanges runs.
absl::StatusOr<std::vector<ByteRange>> ranges_of(std::span<const kernels::Segment> segments);

std::uint64_t bytes_of(std::span<const ByteRange> ranges);

// Returns the tiles of a region of `region_bytes` that lie within `ranges` with all their bytes, as ranges of bytes.
std::vector<ByteRange> whole_tiles(std::span<const ByteRange> ranges, std::uint64_t region_bytes);

// Returns the tiles of a region of `region_bytes` of which `ranges` have any byte, as ranges of bytes.
std::vector<ByteRange> touched_tiles(std::span<const ByteRange> ranges, std::uint64_t region_bytes);

// Returns the part of `tiles`, from one of these two functions for a region of `region_bytes`, whose totals differ in
// the two tables.
std::vector<ByteRange> unequal_tiles(std::span<const kernels::TileTotal> table, std::span<const ByteRange> tiles,
                                     std::span<const kernels::TileTotal> found, std::uint64_t region_bytes);

// Returns the part of `tiles`, from one of these functions, whose bytes differ from the bytes that the table was made
// of. `bytes` is the whole region, of which only these tiles are read; `table` must have passed Regions::check().
// Blocks; uses all threads of `pool`.
std::vector<ByteRange> wrong_tiles(const Region& region, std::span<const kernels::TileTotal> table,
                                   std::span<const ByteRange> tiles, std::span<const std::byte> bytes,
                                   kernels::ThreadPool& pool);

}  // namespace bascule::inline v0
