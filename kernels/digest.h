// The digest of a slot: 128 bits over its bytes, the same on every processor. docs/design/digest.md defines the
// function.
//
// It detects errors, not attackers. Each page of 4 KiB is hashed independently and combined with its position, so
// threads (and a GPU's blocks) can take pages in any order; the last page is extended by zeros. Work is divided into
// tiles of kTileBytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace bascule::inline v0 {

// The digest function's number: peers compare it, and folders record it. (Function 1, in which the keys of two pages
// differed by a constant step, is no longer used.)
inline constexpr std::uint32_t kDigestNumber = 2;

struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;
};

std::string to_hex(const Digest&);  // 32 hexadecimal digits, high word first

namespace kernels {

class ThreadPool;

inline constexpr std::size_t kTileBytes = 64 << 10;

// Computes the digest of `bytes`, on all threads of `pool`. Blocks; allocates nothing.
Digest digest(std::span<const std::byte> bytes, ThreadPool& pool);

// Computes the same digest from bytes that come in pieces, in any order.
class PieceDigest {
 public:
  // Adds the piece at `offset`, where a tile begins; all pieces but the last are whole tiles.
  void add(std::uint64_t offset, std::span<const std::byte> piece);
  Digest finish(std::uint64_t bytes) const;  // once all pieces, `bytes` in total, were added

 private:
  std::uint64_t low_ = 0, high_ = 0;
};

}  // namespace kernels
}  // namespace bascule::inline v0
