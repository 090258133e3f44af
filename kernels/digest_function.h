// The digest function of docs/digest.md, said once: keys, mixing, and the plain sums of a tile. What the
// vector paths compute is compared with this, bit for bit.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/digest.h"

namespace bascule::kernels {

static_assert(std::endian::native == std::endian::little, "slots and their digests are little-endian");

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kTilePages = kTileBytes / kPageBytes;
inline constexpr std::size_t kPageWords = kPageBytes / sizeof(std::uint64_t);

// Two sums of keyed products over a tile.
struct TileSums {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend constexpr bool operator==(const TileSums&, const TileSums&) = default;
};

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
inline constexpr std::uint64_t kLowBits = 0x0000000100000001;  // the lowest bit of both halves

// Output `n` of SplitMix64 seeded with 0.
constexpr std::uint64_t split_mix64(std::uint64_t n) { return mix64((n + 1) * kGolden); }

// Both 32-bit halves apart, each mod 2^32.
constexpr std::uint64_t add_halves(std::uint64_t x, std::uint64_t y) {
  constexpr std::uint64_t kHigh = 0xffffffff00000000;
  return ((x & kHigh) + (y & kHigh)) | ((x + y) & ~kHigh);
}

// A key for each word of a page: the low half is added to the word's low half, the high half to its high
// half. Page p of a tile uses the keys plus p steps. Even keys against odd ones, and odd steps for both: on
// every page the keys of the two sums differ in parity, hence never coincide.
struct DigestKeys {
  alignas(64) std::array<std::uint64_t, kPageWords> first{};
  alignas(64) std::array<std::uint64_t, kPageWords> second{};
  std::uint64_t first_step = split_mix64(2 * kPageWords) | kLowBits;
  std::uint64_t second_step = split_mix64(2 * kPageWords + 1) | kLowBits;

  constexpr DigestKeys() {
    for (std::size_t i = 0; i < kPageWords; ++i) {
      first[i] = split_mix64(i) & ~kLowBits;
      second[i] = split_mix64(kPageWords + i) | kLowBits;
    }
  }
};
inline constexpr DigestKeys kDigestKeys{};

constexpr std::uint64_t product_of_halves(std::uint64_t x) { return (x & 0xffffffff) * (x >> 32); }

inline std::uint64_t load_word(const std::byte* address) {
  std::uint64_t word = 0;
  std::memcpy(&word, address, sizeof(word));
  return word;
}

// The sums of the whole tile at `tile`, in address order.
inline TileSums plain_tile_sums(const std::byte* tile) {
  TileSums sums;
  std::uint64_t first_shift = 0;
  std::uint64_t second_shift = 0;
  for (std::size_t page = 0; page < kTilePages; ++page) {
    for (std::size_t i = 0; i < kPageWords; ++i) {
      const std::uint64_t word = load_word(tile + page * kPageBytes + i * sizeof(word));
      sums.first += product_of_halves(add_halves(word, add_halves(kDigestKeys.first[i], first_shift)));
      sums.second += product_of_halves(add_halves(word, add_halves(kDigestKeys.second[i], second_shift)));
    }
    first_shift = add_halves(first_shift, kDigestKeys.first_step);
    second_shift = add_halves(second_shift, kDigestKeys.second_step);
  }
  return sums;
}

// For each `number` a bijection of 128 bits. Tiles go through it with their index, and their total with the
// length.
constexpr Digest mix128(std::uint64_t first, std::uint64_t second, std::uint64_t number) {
  const std::uint64_t x = mix64(first + (number + 1) * kGolden);
  const std::uint64_t high = mix64(second + x);
  return {.low = mix64(x + high), .high = high};
}

// The hashes of tiles, added up in any order; each half mod 2^64.
struct TileTotal {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  constexpr void add(const TileSums& sums, std::uint64_t tile) {
    const Digest hash = mix128(sums.first, sums.second, tile);
    low += hash.low;
    high += hash.high;
  }
  constexpr void add(const TileTotal& other) {
    low += other.low;
    high += other.high;
  }
  constexpr Digest finish(std::uint64_t length_bytes) const { return mix128(low, high, length_bytes); }
};

}  // namespace bascule::kernels
