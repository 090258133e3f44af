#include "kernels/digest.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/digest_function.h"
#include "kernels/processor.h"
#include "kernels/thread_pool.h"
#include "kernels/tiles.h"

namespace bascule {

std::string to_hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {digest.high, digest.low})
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 15];
  return text;
}

namespace kernels {

TileSums tile_sums(std::span<const std::byte> tile, const Processor& processor) {
  if (tile.size() == kTileBytes) return processor.tile_sums(tile.data());
  alignas(64) std::array<std::byte, kTileBytes> extended;
  std::memcpy(extended.data(), tile.data(), tile.size());
  std::memset(extended.data() + tile.size(), 0, extended.size() - tile.size());
  return processor.tile_sums(extended.data());
}

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool, const Processor& processor) {
  SharedTotal shared;
  const std::size_t piece_bytes = piece_bytes_of(bytes.size(), pool.threads());
  pool.run((bytes.size() + piece_bytes - 1) / piece_bytes, [&](std::size_t piece) {
    const std::size_t end = std::min(bytes.size(), (piece + 1) * piece_bytes);
    TileTotal total;
    for (std::size_t begin = piece * piece_bytes; begin < end; begin += kTileBytes)
      total.add(tile_sums(bytes.subspan(begin, std::min(kTileBytes, end - begin)), processor), begin / kTileBytes);
    shared.add(total);
  });
  return shared.total().finish(bytes.size());
}

Digest digest(std::span<const std::byte> bytes, ThreadPool& pool) { return digest(bytes, pool, best_processor()); }

void PieceDigest::add(std::uint64_t offset, std::span<const std::byte> piece) {
  TileTotal total{.low = low_, .high = high_};
  for (std::size_t at = 0; at < piece.size(); at += kTileBytes)
    total.add(tile_sums(piece.subspan(at, std::min(kTileBytes, piece.size() - at)), best_processor()),
              (offset + at) / kTileBytes);
  low_ = total.low;
  high_ = total.high;
}

Digest PieceDigest::finish(std::uint64_t bytes) const { return TileTotal{.low = low_, .high = high_}.finish(bytes); }

}  // namespace kernels
}  // namespace bascule
