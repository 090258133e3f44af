// The digest of a slot: 128 bits over its bytes, the same on every processor. docs/digest.md states the
// function.
//
// It finds errors, not attackers. Tiles of kTileBytes are hashed independently and combined with their
// position, so that threads (and a GPU's blocks) work in any order; the last tile is extended by zeros.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace bascule {

struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;
};

std::string to_hex(const Digest&);  // 32 hexadecimal digits, high word first

namespace kernels {

class ThreadPool;

inline constexpr std::size_t kTileBytes = 64 << 10;

// The digest of `bytes`, by all threads of `pool`. Blocks; allocates nothing.
Digest digest(std::span<const std::byte> bytes, ThreadPool& pool);

// The same digest of bytes that come in pieces, in any order.
class PieceDigest {
 public:
  // A piece that begins `offset` bytes into the whole, on a tile; all but the last one are whole tiles.
  void add(std::uint64_t offset, std::span<const std::byte> piece);
  Digest finish(std::uint64_t bytes) const;  // all pieces, of so many bytes, were added

 private:
  std::uint64_t low_ = 0, high_ = 0;
};

}  // namespace kernels
}  // namespace bascule
