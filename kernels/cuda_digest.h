// The digest of a slot that the device can read, made by the device: the twin of digest.h, the same bits.
//
// Nothing here waits for the device, and no call allocates. One stream at a time for a cell; the caller orders streams
// by events where it changes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/digest.h>

namespace bascule::inline v0::kernels::cuda {

// What blocks add the hashes of tiles to: each half of a hash in two words, its lower bits in the first. In its own low
// bits a word counts the tiles that are in it; so an addition brings back all that one must know to be the last, and no
// block waits until the others' are seen.
//
//   words 0, 2   | sum of the halves' lower 22 bits, 43 bits      | tiles, 21 bits |
//   words 1, 3   | sum of the halves' upper 42 bits, modulo 2^43  | tiles, 21 bits |
struct DigestTotals {
  static constexpr int kCountBits = 21, kLowerBits = 22;
  static constexpr std::uint64_t kMostTiles = (std::uint64_t{1} << kCountBits) - 1;  // 128 GiB

  // Of the sum of `tiles` tiles' hashes.
  static constexpr unsigned long long lower(std::uint64_t half, std::uint64_t tiles) {
    return (half & ((1ULL << kLowerBits) - 1)) << kCountBits | tiles;
  }
  static constexpr unsigned long long upper(std::uint64_t half, std::uint64_t tiles) {
    return half >> kLowerBits << kCountBits | tiles;
  }
  static constexpr std::uint64_t count(unsigned long long word) { return word & ((1ULL << kCountBits) - 1); }
  // Of two words that count all tiles.
  static constexpr std::uint64_t half(unsigned long long lower, unsigned long long upper) {
    return (lower >> kCountBits) + (upper >> kCountBits << kLowerBits);
  }

  unsigned long long words[4];
};

// Where kernels leave a digest; passed to them by value.
struct DigestOutput {
  DigestTotals* totals = nullptr;  // null: no digest is wanted; zeros between two digests
  DigestTotals* sums = nullptr;    // pinned
  std::uint64_t tiles = 0, bytes = 0;
};

inline std::uint64_t tiles_of(std::uint64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// Totals on the device and the digest in pinned memory. A moved-from cell must not be used.
class DigestCell {
 public:
  static CudaResult make(DigestCell* made);  // on the current device; blocks

  // For kernels that will digest a slot of `bytes` tile by tile, all of them in one launch or several. Where the
  // kernels of the target before this one were not all launched, what they added is cleared, on `stream`.
  // cudaErrorInvalidValue: more than kMostTiles.
  CudaResult target(std::uint64_t bytes, Stream stream, DigestOutput* target);
  // So many tiles of the target were given to kernels.
  void launched(std::uint64_t tiles) { missing_tiles_ -= tiles; }
  // What was enqueued may not come to be: what is there is cleared before the next target.
  void forget() { missing_tiles_ = kUnknown; }

  // Of the last target: valid once an event that was recorded behind its last kernel has passed.
  Digest digest() const;

 private:
  DeviceMemory totals_;
  PinnedMemory sums_;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};  // as of new memory
  std::uint64_t bytes_ = 0, missing_tiles_ = kUnknown;          // of the last target
};

// Enqueues the digest of a piece of the slot, tiles [first, last); `target` is the cell's last one. After the last
// piece the digest is complete, in whatever order they came.
CudaResult digest_piece(const void* slot, std::uint64_t first, std::uint64_t last, const DigestOutput& target,
                        DigestCell& cell, Stream stream);

// Enqueues the digest of `bytes` bytes at `slot`, an address on 16 bytes that the device can read, in one launch.
CudaResult digest(const void* slot, std::uint64_t bytes, DigestCell& cell, Stream stream);

}  // namespace bascule::inline v0::kernels::cuda
