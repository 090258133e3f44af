// The digest of a slot, made by a device that can read the slot. The twin of digest.h, with the same result, bit for
// bit.
//
// Nothing here waits for the device, and no call allocates. A cell is used on one stream at a time; a caller that
// changes streams orders them by events.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels::cuda {

// The sum of all tiles' hashes, to which each thread block adds its own. Each half of a hash has two words, with its
// lower bits in the first. The low bits of a word count the tiles added to it, so a block knows from the result of its
// atomic addition whether it was the last to add, and need not wait for the others.
//
//   words 0, 2   | sum of the halves' lower 22 bits, 43 bits      | tiles, 21 bits |
//   words 1, 3   | sum of the halves' upper 42 bits, modulo 2^43  | tiles, 21 bits |
struct DigestTotals {
  static constexpr int kCountBits = 21, kLowerBits = 22;
  static constexpr std::uint64_t kMostTiles = (std::uint64_t{1} << kCountBits) - 1;  // 128 GiB

  // The two words for the sum of the hashes of `tiles` tiles.
  static constexpr unsigned long long lower(std::uint64_t half, std::uint64_t tiles) {
    return (half & ((1ULL << kLowerBits) - 1)) << kCountBits | tiles;
  }
  static constexpr unsigned long long upper(std::uint64_t half, std::uint64_t tiles) {
    return half >> kLowerBits << kCountBits | tiles;
  }
  static constexpr std::uint64_t count(unsigned long long word) { return word & ((1ULL << kCountBits) - 1); }
  // Puts a half together from its two words, once these count all tiles.
  static constexpr std::uint64_t half(unsigned long long lower, unsigned long long upper) {
    return (lower >> kCountBits) + (upper >> kCountBits << kLowerBits);
  }

  unsigned long long words[4];
};

// Where kernels store the totals of single tiles; passed to them by value. The twin of digest_table.h's outputs.
struct TileOutput {
  TileTotal* totals = nullptr;           // host memory that the device writes, one per tile; null: none is wanted
  const std::uint8_t* wanted = nullptr;  // on the device: not 0 for each wanted tile; null: all are
};

// Tells kernels where to store a digest; passed to them by value.
struct DigestOutput {
  DigestTotals* totals = nullptr;  // null: no digest is requested; holds zeros between two digests
  DigestTotals* sums = nullptr;    // pinned
  std::uint64_t tiles = 0, bytes = 0;
  std::uint64_t first_page = 0;  // the number of the first page in its version
  TileOutput of_tiles{};

#ifdef __CUDACC__
  // Whether a kernel has to hash that tile.
  __device__ bool wants(std::uint64_t tile) const {
    return totals != nullptr ||
           (of_tiles.totals != nullptr && (of_tiles.wanted == nullptr || of_tiles.wanted[tile] != 0));
  }
#endif
};

inline std::uint64_t tiles_of(std::uint64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// Totals on the device and the digest in pinned memory. A moved-from cell must not be used.
class DigestCell {
 public:
  static CudaResult make(DigestCell* made);  // on the current device; blocks

  // Starts the digest of a slot of `bytes` bytes, which kernels make tile by tile in one launch or several; `target`
  // receives where they store it. If the last target's tiles were not all launched, clears the totals first, on
  // `stream`. Returns cudaErrorInvalidValue if there are more than kMostTiles tiles. If the slot is a region of a
  // version, `first_page` is the number of its first page, and total() is the region's part of the version's total.
  CudaResult target(std::uint64_t bytes, Stream stream, DigestOutput* target, std::uint64_t first_page = 0,
                    const TileOutput& of_tiles = {});
  // Reports that `tiles` tiles of the target were given to kernels.
  void launched(std::uint64_t tiles) { missing_tiles_ -= tiles; }
  // Call it if the enqueued work may never run: the next target() then clears the totals.
  void forget() { missing_tiles_ = kUnknown; }

  // The sum of the page hashes of the last target, and its digest; valid once an event recorded after its last kernel
  // has passed.
  TileTotal total() const;
  Digest digest() const { return total().finish(bytes_); }

 private:
  DeviceMemory totals_;
  PinnedMemory sums_;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};  // also the value for new memory
  std::uint64_t bytes_ = 0, missing_tiles_ = kUnknown;          // of the last target
};

// Enqueues the digest of a piece of the slot, tiles [first, last). `target` must come from the cell's last target().
// Pieces may come in any order, and after the last one the digest is complete.
CudaResult digest_piece(const void* slot, std::uint64_t first, std::uint64_t last, const DigestOutput& target,
                        DigestCell& cell, Stream stream);

// Enqueues, in one launch, the digest of `bytes` bytes at `slot`, which the device can read and which is aligned to 16
// bytes.
CudaResult digest(const void* slot, std::uint64_t bytes, DigestCell& cell, Stream stream,
                  const TileOutput& of_tiles = {});

// Enqueues, in one launch, the totals of the tiles that `of_tiles` wants, and reads only these.
CudaResult total_tiles(const void* slot, std::uint64_t bytes, const TileOutput& of_tiles, Stream stream);

}  // namespace bascule::inline v0::kernels::cuda
