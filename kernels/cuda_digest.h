// The digest of a slot that the device can read, made by the device: the twin of digest.h, the same bits.
//
// Nothing here waits for the device, and no call allocates. One stream at a time for a cell; the caller orders streams
// by events where it changes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_memory.h"
#include "kernels/digest.h"

namespace bascule::kernels::cuda {

// What blocks add to. Zeros between two digests.
struct DigestTotals {
  unsigned long long low, high, tiles;
};

// Where a kernel leaves a digest; passed to it by value.
struct DigestTarget {
  DigestTotals* totals = nullptr;  // null: no digest is wanted
  Digest* digest = nullptr;        // pinned
  std::uint64_t tiles = 0, bytes = 0;
};

inline std::uint64_t tiles_of(std::uint64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// Totals on the device and the digest in pinned memory. A moved-from cell must not be used.
class DigestCell {
 public:
  static CudaResult make(DigestCell* made);  // on the current device; blocks

  // For kernels that will digest a slot of `bytes` tile by tile, all of them in one launch or several. Where the
  // kernels of the target before this one were not all launched, what they added is cleared, on `stream`.
  CudaResult target(std::uint64_t bytes, Stream stream, DigestTarget* target);
  // So many tiles of the target were given to kernels.
  void launched(std::uint64_t tiles) { missing_tiles_ -= tiles; }

  // Of the last target: valid once an event that was recorded behind its last kernel has passed, until the next
  // target()'s kernels begin.
  Digest digest() const { return *digest_.as<Digest>(); }

 private:
  DeviceMemory totals_;
  PinnedMemory digest_;
  std::uint64_t missing_tiles_ = 0;
};

// Enqueues the part of a digest that tiles [first, last) of the slot make; `target` is the cell's last one. Behind the
// last part the digest is whole, in whatever order they came.
CudaResult digest_part(const void* slot, std::uint64_t first, std::uint64_t last, const DigestTarget& target,
                       DigestCell& cell, Stream stream);

// Enqueues the digest of `bytes` bytes at `slot`, an address on 16 bytes that the device can read, in one launch.
CudaResult digest(const void* slot, std::uint64_t bytes, DigestCell& cell, Stream stream);

}  // namespace bascule::kernels::cuda
