#include <bascule/kernels/digest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>

#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0 {

std::string to_hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {digest.high, digest.low})
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 15];
  return text;
}

namespace kernels {

TileSums tile_sums(std::span<const std::byte> tile, const Processor& processor) {
  TileSums sums;
  const std::size_t whole = tile.size() / kPageBytes;
  for (std::size_t page = 0; page < whole; ++page)
    sums.pages[page] = processor.page_sums(tile.data() + page * kPageBytes);
  if (const auto rest = tile.subspan(whole * kPageBytes); !rest.empty()) {
    alignas(64) std::array<std::byte, kPageBytes> extended{};
    std::memcpy(extended.data(), rest.data(), rest.size());
    sums.pages[whole] = processor.page_sums(extended.data());
  }
  return sums;
}

TileWriter streaming_copy(std::span<const std::byte> slot, const Processor& processor) {
  const bool pays = slot.size() > kFitsInCachesBytes && reinterpret_cast<std::uintptr_t>(slot.data()) % kLineBytes == 0;
  return pays ? processor.tile_writer(DType::kU8, DType::kU8) : nullptr;
}

TileSums store_tile(std::span<const std::byte> made, std::span<std::byte> tile, TileWriter streaming, bool want_sums,
                    const Processor& processor) {
  TileSums sums;
  if (streaming != nullptr && made.size() == kTileBytes) {
    streaming(made.data(), tile.data(), 0, kTileBytes, want_sums ? &sums : nullptr);
    return sums;
  }
  if (want_sums) sums = tile_sums(made, processor);
  std::memcpy(tile.data(), made.data(), made.size());
  return sums;
}

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool, const Processor& processor, TableOutput table) {
  assert(table.totals.empty() || table.totals.size() == tiles_of(bytes.size()));
  SharedTotal shared;
  const std::size_t piece_bytes = piece_bytes_of(bytes.size(), pool.threads());
  pool.run((bytes.size() + piece_bytes - 1) / piece_bytes, [&](std::size_t piece) {
    const std::size_t end = std::min(bytes.size(), (piece + 1) * piece_bytes);
    TileAdder tiles(table);
    for (std::size_t begin = piece * piece_bytes; begin < end; begin += kTileBytes) {
      const auto tile = bytes.subspan(begin, std::min(kTileBytes, end - begin));
      tiles.add(tile_sums(tile, processor), begin / kTileBytes, tile.size());
    }
    shared.add(tiles.total());
  });
  return shared.total().finish(bytes.size());
}

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool) { return digest(bytes, pool, best_processor()); }

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool, TableOutput table) {
  return digest(bytes, pool, best_processor(), table);
}

TileTotal tile_total(std::span<const std::byte> tile, std::uint64_t first_page) {
  TileTotal total;
  total.add_pages(tile_sums(tile, best_processor()), first_page, tile.size());
  return total;
}

void PieceDigest::add(std::uint64_t offset, std::span<const std::byte> piece) {
  TileTotal total{.low = low_, .high = high_};
  for (std::size_t at = 0; at < piece.size(); at += kTileBytes) {
    const auto tile = piece.subspan(at, std::min(kTileBytes, piece.size() - at));
    total.add(tile_sums(tile, best_processor()), (offset + at) / kTileBytes, tile.size());
  }
  low_ = total.low;
  high_ = total.high;
}

Digest PieceDigest::finish(std::uint64_t bytes) const { return TileTotal{.low = low_, .high = high_}.finish(bytes); }

}  // namespace kernels
}  // namespace bascule::inline v0
