// The digest table of a region: for each of its tiles, the sum of its pages' hashes. docs/design/regions.md says what
// regions are, and who checks what against a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels {

class ThreadPool;

constexpr std::uint64_t tiles_of(std::uint64_t bytes) { return bytes / kTileBytes + (bytes % kTileBytes != 0 ? 1 : 0); }

// Where a pass over a region stores the totals of its tiles.
struct TableOutput {
  std::uint64_t first_page = 0;   // the number of the region's first page in its version
  std::span<TileTotal> totals{};  // tiles_of(region's bytes) of them, or none: no table is wanted
};

// For a reader of parts of a slot: the tiles whose totals it wants. Both have tiles_of(slot's bytes) entries, or none.
struct WantedTotals {
  std::span<const std::uint8_t> wanted{};  // not 0: give this tile's total
  std::span<TileTotal> totals{};           // of the other tiles, nothing is written
};

// Computes the digest of `bytes` as digest() of digest.h does, and fills the table. If its first page is not page 0,
// only the table is of use. Blocks; allocates nothing.
Digest digest(std::span<const std::byte> bytes, ThreadPool& pool, TableOutput table);

TileTotal sum_of(std::span<const TileTotal> totals);
// Copies all of `from` to `to`, which has the same size, and returns the sum of the copy, in one pass over memory.
TileTotal copy_and_sum(std::span<const TileTotal> from, std::span<TileTotal> to);
// Returns whether the tiles whose `wanted` is not 0 have the same totals in both tables. All three have the same size.
bool equal_totals(std::span<const TileTotal> a, std::span<const TileTotal> b, std::span<const std::uint8_t> wanted);

// Returns the total of one tile, at most kTileBytes, whose first page has number `first_page`.
TileTotal tile_total(std::span<const std::byte> tile, std::uint64_t first_page);

}  // namespace bascule::inline v0::kernels
