// Computes the digest of docs/design/digest.md with blocks of 512 threads, one tile per block. The twin of
// digest_function.h's plain_page_sums().
//
// Each of a block's 16 warps takes one page, and its lanes together take 64 words per step. The keys lie in shared
// memory; the keys that a lane uses for the second sum of a step are also its keys for the first sum of the next step.
#pragma once

#include <cstdint>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels::cuda {

inline constexpr std::uint32_t kThreads = 512;
inline constexpr std::uint32_t kStepWords = 64;  // of a page: 32 lanes take two words, 16 bytes, each
inline constexpr std::uint32_t kSteps = kPageWords / kStepWords;
static_assert(kThreads / 32 == kTilePages && kKeyShift == kStepWords);

// Which words of a step a lane takes.
enum class Words {
  kAdjacent,  // 2 i and 2 i + 1: 16 bytes of slot
  kApart,     // 32 words apart: a warp's lanes lie side by side if a word is 16 bytes of the tensor
};

struct Place {
  std::uint32_t page;      // the warp's page in the tile
  std::uint32_t words[2];  // of a step

  template <Words kWords>
  static __device__ Place of_thread() {
    const std::uint32_t page = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (kWords == Words::kAdjacent) return {page, {2 * lane, 2 * lane + 1}};
    return {page, {lane, lane + 32}};
  }
  // The byte offset in the tile of word `i` of step `step`.
  __device__ std::uint32_t byte_of(std::uint32_t step, int i) const {
    return page * static_cast<std::uint32_t>(kPageBytes) + (step * kStepWords + words[i]) * 8;
  }
};

// Makes the keys in the block's shared memory. All threads call it, once per kernel, and it waits for all of them.
__device__ inline const std::uint64_t* make_block_keys() {
  alignas(16) __shared__ std::uint64_t keys[kKeys];
  for (std::uint32_t i = threadIdx.x; i < kKeys; i += kThreads) keys[i] = split_mix64(i);
  __syncthreads();
  return keys;
}

// Adds up eight sums of all lanes. Returns sum number lane / 4. Each step halves the sums that a lane holds, and the
// lanes that hold parts of a sum.
__device__ inline std::uint64_t sum_of_lanes(std::uint64_t (&sums)[8]) {
#pragma unroll
  for (int count = 4, offset = 16; count > 0; count /= 2, offset /= 2) {
    const bool upper = (threadIdx.x & static_cast<unsigned>(offset)) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const std::uint64_t keeps = upper ? sums[i + count] : sums[i], gives = upper ? sums[i] : sums[i + count];
      sums[i] = keeps + __shfl_xor_sync(~0U, gives, offset);
    }
  }
  sums[0] += __shfl_xor_sync(~0U, sums[0], 2);
  return sums[0] + __shfl_xor_sync(~0U, sums[0], 1);
}

// Adds up the page hashes of `tiles` tiles, beginning with `tile`, which are in the warps' first lanes. Stores the sum
// as the tile's total, if that is wanted, and adds it to the cell. All threads call it. The thread that is last to add
// to a word gets that word's final sum from the addition; it stores the sum for the host, and resets the word.
__device__ inline void give_hashes(const Digest& of_warp, std::uint64_t tile, std::uint64_t tiles,
                                   const DigestOutput& target) {
  __shared__ std::uint64_t low[kTilePages], high[kTilePages];
  if (threadIdx.x % 32 == 0) {
    low[threadIdx.x / 32] = of_warp.low;
    high[threadIdx.x / 32] = of_warp.high;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  Digest hash;
  for (std::uint32_t page = 0; page < kTilePages; ++page) {
    hash.low += low[page];
    hash.high += high[page];
  }
  if (target.of_tiles.totals != nullptr)
    *reinterpret_cast<ulonglong2*>(target.of_tiles.totals + tile) = {hash.low, hash.high};
  if (target.totals == nullptr) return;
  const unsigned long long parts_of_hash[] = {
      DigestTotals::lower(hash.low, tiles), DigestTotals::upper(hash.low, tiles), DigestTotals::lower(hash.high, tiles),
      DigestTotals::upper(hash.high, tiles)};
  unsigned long long words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)  // all in flight at once
    words[i] = parts_of_hash[i] + atomicAdd(target.totals->words + i, parts_of_hash[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (DigestTotals::count(words[i]) != target.tiles) continue;
    target.totals->words[i] = 0;
    target.sums->words[i] = words[i];
  }
}

// A lane's part of the two sums of its warp's page. Call add() for each step, in order.
template <Words kWords>
class ThreadSums {
 public:
  __device__ ThreadSums(const Place& place, const std::uint64_t* block_keys)
      : next_(block_keys + place.words[0]), keys_(load_keys()) {}

  // The lane's words of a step: x and y are the halves of the first, z and w of the second.
  __device__ void add(const uint4& words) {
    add_products(sums_[0], words);
    keys_ = load_keys();
    add_products(sums_[1], words);
  }

  // Call it after the last step. Returns the hash of the warp's page in its first lane, and zeros in the other lanes
  // and for a page past the slot's end. All lanes call it.
  __device__ Digest page_hash(std::uint64_t tile, const DigestOutput& target) {
    for (std::uint64_t& sum : sums_)
      for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
    const std::uint64_t page = tile * kTilePages + threadIdx.x / 32;
    if (threadIdx.x % 32 != 0 || page * kPageBytes >= target.bytes) return {};
    return mix128(sums_[0], sums_[1], target.first_page + page);
  }
  // Gives the page's hash. All threads of the block call it.
  __device__ void finish(std::uint64_t tile, const DigestOutput& target) {
    give_hashes(page_hash(tile, target), tile, 1, target);
  }

 private:
  // The next step's keys, in the order of add()'s words.
  __device__ uint4 load_keys() {
    const std::uint64_t* const keys = next_;
    next_ += kStepWords;
    if constexpr (kWords == Words::kAdjacent) return *reinterpret_cast<const uint4*>(keys);
    const uint2 first = *reinterpret_cast<const uint2*>(keys), second = *reinterpret_cast<const uint2*>(keys + 32);
    return {first.x, first.y, second.x, second.y};
  }
  __device__ void add_products(std::uint64_t& sum, const uint4& words) const {
    sum += static_cast<std::uint64_t>(words.x + keys_.x) * (words.y + keys_.y);
    sum += static_cast<std::uint64_t>(words.z + keys_.z) * (words.w + keys_.w);
  }

  const std::uint64_t* next_;
  uint4 keys_;
  std::uint64_t sums_[2] = {0, 0};
};

// Loads 16 bytes of the slot at `byte`, with zeros past the slot's end.
__device__ inline uint4 load_extended(const std::byte* slot, std::uint64_t byte, std::uint64_t bytes) {
  if (byte + 16 <= bytes) return *reinterpret_cast<const uint4*>(slot + byte);
  std::uint64_t words[2] = {0, 0};
  for (std::uint32_t i = 0; byte + i < bytes; ++i)
    words[i / 8] |= static_cast<std::uint64_t>(slot[byte + i]) << (i % 8 * 8);
  return {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[0] >> 32),
          static_cast<std::uint32_t>(words[1]), static_cast<std::uint32_t>(words[1] >> 32)};
}

// A lane's words of a tile, read from the slot with all loads in flight together, so that the block waits for memory
// once and not once per step. All threads of the block make one.
struct LoadedTile {
  uint4 words[kSteps];

  static __device__ LoadedTile load(const std::byte* slot, std::uint64_t tile, std::uint64_t bytes) {
    const Place place = Place::of_thread<Words::kAdjacent>();
    const std::uint64_t begin = tile * kTileBytes;
    LoadedTile loaded;
    if (begin + kTileBytes <= bytes) {
#pragma unroll
      for (std::uint32_t step = 0; step < kSteps; ++step)
        loaded.words[step] = *reinterpret_cast<const uint4*>(slot + begin + place.byte_of(step, 0));
    } else {
#pragma unroll
      for (std::uint32_t step = 0; step < kSteps; ++step)
        loaded.words[step] = load_extended(slot, begin + place.byte_of(step, 0), bytes);
    }
    return loaded;
  }

  __device__ ThreadSums<Words::kAdjacent> sums(const std::uint64_t* block_keys) const {
    ThreadSums<Words::kAdjacent> sums(Place::of_thread<Words::kAdjacent>(), block_keys);
#pragma unroll
    for (const uint4& step : words) sums.add(step);
    return sums;
  }
};

}  // namespace bascule::inline v0::kernels::cuda
