// Shared by pack, unpack and digest: pieces of whole tiles, and totals that several threads add to. digest(), pack()
// and unpack() here are the public functions on a given Processor, for tests that compare processors.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

class SharePlan;

inline constexpr std::size_t kMostTiles = 32;  // of one piece

// How many bytes one thread takes at a time: whole tiles, few enough that all threads end together.
inline std::size_t piece_bytes_of(std::size_t bytes, int threads) {
  constexpr std::size_t kPiecesPerThread = 4;
  const std::size_t tiles = bytes / kTileBytes / (kPiecesPerThread * static_cast<std::size_t>(threads));
  return std::clamp(tiles, std::size_t{1}, kMostTiles) * kTileBytes;
}

// Larger copies bypass the caches: they displace nothing there, and need not first read the lines that they overwrite.
// Smaller copies stay in the caches for the next reader.
inline constexpr std::size_t kFitsInCachesBytes = std::size_t{4} << 20;

// A TileTotal to which several threads add. It is read after ThreadPool::run(), which orders their writes, so relaxed
// memory order suffices.
class SharedTotal {
 public:
  void add(const TileTotal& total) {
    low_.fetch_add(total.low, std::memory_order_relaxed);
    high_.fetch_add(total.high, std::memory_order_relaxed);
  }
  TileTotal total() const { return {low_.load(std::memory_order_relaxed), high_.load(std::memory_order_relaxed)}; }

 private:
  std::atomic<std::uint64_t> low_{0};
  std::atomic<std::uint64_t> high_{0};
};

// Adds up the tiles that one thread takes, and stores the total of each in the table, if one is wanted.
class TileAdder {
 public:
  explicit TileAdder(TableOutput table) : table_(table) {}

  void add(const TileSums& sums, std::uint64_t tile, std::size_t bytes = kTileBytes) {
    TileTotal of_tile;
    of_tile.add_pages(sums, table_.first_page + tile * kTilePages, bytes);
    if (!table_.totals.empty()) table_.totals[tile] = of_tile;
    total_.add(of_tile);
  }
  const TileTotal& total() const { return total_; }

 private:
  TableOutput table_;
  TileTotal total_;
};

// The writer that copies tiles into `slot` past the caches; null if ordinary stores are better there.
TileWriter streaming_copy(std::span<const std::byte> slot, const Processor& processor);

// Copies a tile from the caches into the slot, with `streaming` unless that is null or the tile is short. Returns its
// sums if they are wanted.
TileSums store_tile(std::span<const std::byte> made, std::span<std::byte> tile, TileWriter streaming, bool want_sums,
                    const Processor& processor);

// Prefetches the beginning of a run: short runs end before the processor sees a pattern.
inline void prefetch_run(const Segment& run, const std::byte* tensor) {
  constexpr std::uint64_t kMost = 1024;
  const std::byte* const source = tensor + run.tensor_offset;
  const std::uint64_t bytes = std::min(run.elements * size_of(run.tensor_dtype), kMost);
  for (std::uint64_t line = 0; line < bytes; line += kLineBytes) __builtin_prefetch(source + line);
}

// The sums of one tile. The last tile may be shorter than kTileBytes: its last page is extended by zeros.
TileSums tile_sums(std::span<const std::byte> tile, const Processor& processor);

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool, const Processor& processor, TableOutput table = {});

std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done, const Processor& processor,
                           std::span<const Arithmetic> arithmetic = {}, TableOutput table = {});

void pack_share(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
                std::span<TileTotal> totals, ThreadPool& pool, const Processor& processor);

std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool,
                             const Processor& processor, WantedTotals tiles = {});

}  // namespace bascule::inline v0::kernels
