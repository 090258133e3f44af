// The digest of docs/digest.md as blocks of 512 threads make it, one tile a block. The twin of digest_function.h's
// plain_tile_sums().
//
// A block holds two pages side by side: 256 threads have two words of a page each, the same two on every page, so that
// their keys stay in registers and take one step a pair of pages.
#pragma once

#include <cstdint>

#include "kernels/cuda_digest.h"
#include "kernels/digest_function.h"

namespace bascule::kernels::cuda {

inline constexpr std::uint32_t kThreads = 512;
inline constexpr std::uint32_t kPageThreads = kPageBytes / 16;    // 16 bytes, two words, each
inline constexpr std::uint32_t kSides = kThreads / kPageThreads;  // pages at a time
inline constexpr std::uint32_t kSteps = kTilePages / kSides;

// Which words of a page a thread has.
enum class Words {
  kAdjacent,  // 2 i and 2 i + 1: 16 bytes of slot
  kApart,     // 32 words from each other: a warp's lanes side by side, where a word is 16 bytes of the tensor
};

struct Place {
  std::uint32_t side;      // of kSides
  std::uint32_t words[2];  // in the page

  template <Words kWords>
  static __device__ Place of_thread() {
    const std::uint32_t i = threadIdx.x % kPageThreads;
    const std::uint32_t side = threadIdx.x / kPageThreads;
    if constexpr (kWords == Words::kAdjacent) return {side, {2 * i, 2 * i + 1}};
    const std::uint32_t first = i / 32 * 64 + i % 32;
    return {side, {first, first + 32}};
  }
  // Where word `i` of page `step` lies in the tile, in bytes.
  __device__ std::uint32_t byte_of(std::uint32_t step, int i) const {
    return (step * kSides + side) * static_cast<std::uint32_t>(kPageBytes) + words[i] * 8;
  }
};

// A thread's part of the two sums of a tile. Call add() for each step, in order.
class ThreadSums {
 public:
  __device__ explicit ThreadSums(const Place& place) {
    for (int j = 0; j < 2; ++j) {
      const std::uint64_t step = split_mix64(2 * kPageWords + static_cast<std::uint64_t>(j)) | kLowBits;
      for (int i = 0; i < 2; ++i) {
        const std::uint64_t random = split_mix64(static_cast<std::uint64_t>(j) * kPageWords + place.words[i]);
        const std::uint64_t key = j == 0 ? random & ~kLowBits : random | kLowBits;
        low_[j][i] = static_cast<std::uint32_t>(key) + place.side * static_cast<std::uint32_t>(step);
        high_[j][i] = static_cast<std::uint32_t>(key >> 32) + place.side * static_cast<std::uint32_t>(step >> 32);
      }
      low_step_[j] = kSides * static_cast<std::uint32_t>(step);
      high_step_[j] = kSides * static_cast<std::uint32_t>(step >> 32);
    }
  }

  // The thread's words of a step: x and y are the halves of the first, z and w of the second.
  __device__ void add(const uint4& words) {
    for (int j = 0; j < 2; ++j) {
      sums_[j] += static_cast<std::uint64_t>(words.x + low_[j][0]) * (words.y + high_[j][0]);
      sums_[j] += static_cast<std::uint64_t>(words.z + low_[j][1]) * (words.w + high_[j][1]);
      for (int i = 0; i < 2; ++i) {
        low_[j][i] += low_step_[j];
        high_[j][i] += high_step_[j];
      }
    }
  }

  // Adds up the block's sums and gives the tile's hash to the cell; all threads call it. Whoever is the last to add to
  // a word knows its sum by that: he leaves it for the host, and the word as it was before the first.
  __device__ void finish(std::uint64_t tile, const DigestTarget& target) {
    __shared__ std::uint64_t parts[2][kThreads / 32];
    for (int j = 0; j < 2; ++j) {
      for (int offset = 16; offset > 0; offset /= 2) sums_[j] += __shfl_xor_sync(~0U, sums_[j], offset);
      if (threadIdx.x % 32 == 0) parts[j][threadIdx.x / 32] = sums_[j];
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    TileSums sums;
    for (std::uint32_t warp = 0; warp < kThreads / 32; ++warp) {
      sums.first += parts[0][warp];
      sums.second += parts[1][warp];
    }
    const Digest hash = mix128(sums.first, sums.second, tile);
    const unsigned long long parts_of_hash[] = {DigestTotals::lower(hash.low), DigestTotals::upper(hash.low),
                                                DigestTotals::lower(hash.high), DigestTotals::upper(hash.high)};
    unsigned long long words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)  // all under way at once
      words[i] = parts_of_hash[i] + atomicAdd(target.totals->words + i, parts_of_hash[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (DigestTotals::count(words[i]) != target.tiles) continue;
      target.totals->words[i] = 0;
      target.sums->words[i] = words[i];
    }
  }

 private:
  std::uint32_t low_[2][2], high_[2][2];  // keys, by sum and word
  std::uint32_t low_step_[2], high_step_[2];
  std::uint64_t sums_[2] = {0, 0};
};

// 16 bytes of the slot at `byte`, extended by zeros behind its end.
__device__ inline uint4 load_extended(const std::byte* slot, std::uint64_t byte, std::uint64_t bytes) {
  if (byte + 16 <= bytes) return *reinterpret_cast<const uint4*>(slot + byte);
  std::uint64_t words[2] = {0, 0};
  for (std::uint32_t i = 0; byte + i < bytes; ++i)
    words[i / 8] |= static_cast<std::uint64_t>(slot[byte + i]) << (i % 8 * 8);
  return {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[0] >> 32),
          static_cast<std::uint32_t>(words[1]), static_cast<std::uint32_t>(words[1] >> 32)};
}

// Digests tile `tile` as it lies in the slot. All threads of the block.
__device__ inline void digest_tile(const std::byte* slot, std::uint64_t tile, const DigestTarget& target) {
  const Place place = Place::of_thread<Words::kAdjacent>();
  ThreadSums sums(place);
  const std::uint64_t begin = tile * kTileBytes;
#pragma unroll
  for (std::uint32_t step = 0; step < kSteps; ++step)
    sums.add(load_extended(slot, begin + place.byte_of(step, 0), target.bytes));
  sums.finish(tile, target);
}

}  // namespace bascule::kernels::cuda
