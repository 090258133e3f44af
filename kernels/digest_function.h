// The reference for the digest function of docs/design/digest.md: keys, mixing, and the plain sums of a page. Tests
// compare the vector paths with it, bit for bit.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <bascule/kernels/digest.h>

namespace bascule::inline v0::kernels {

static_assert(std::endian::native == std::endian::little, "slots and their digests are little-endian");

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kTilePages = kTileBytes / kPageBytes;
inline constexpr std::size_t kPageWords = kPageBytes / sizeof(std::uint64_t);

// Two sums of keyed products over a page.
struct PageSums {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend constexpr bool operator==(const PageSums&, const PageSums&) = default;
};

// The sums of a tile's pages, in order. Pages past the slot's end are ignored.
struct TileSums {
  std::array<PageSums, kTilePages> pages{};
};

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

// The n-th output, from 0, of SplitMix64 seeded with 0.
constexpr std::uint64_t split_mix64(std::uint64_t n) { return mix64((n + 1) * kGolden); }

// Word i of a page has key i in the first sum and key i + kKeyShift in the second. A key's low half is added to the
// word's low half, its high half to the word's high half.
inline constexpr std::size_t kKeyShift = 64;
inline constexpr std::size_t kKeys = kPageWords + kKeyShift;

struct DigestKeys {
  alignas(64) std::array<std::uint64_t, kKeys> keys{};

  constexpr DigestKeys() {
    for (std::size_t i = 0; i < kKeys; ++i) keys[i] = split_mix64(i);
  }
  constexpr const std::uint64_t* first() const { return keys.data(); }
  constexpr const std::uint64_t* second() const { return keys.data() + kKeyShift; }
};
inline constexpr DigestKeys kDigestKeys{};

// (low half + a) * (high half + b), for the halves a and b of `key`: both sums mod 2^32, the product in full.
constexpr std::uint64_t keyed_product(std::uint64_t word, std::uint64_t key) {
  const auto low = static_cast<std::uint32_t>(word + key);
  const auto high = static_cast<std::uint32_t>((word >> 32) + (key >> 32));
  return std::uint64_t{low} * high;
}

inline std::uint64_t load_word(const std::byte* address) {
  std::uint64_t word = 0;
  std::memcpy(&word, address, sizeof(word));
  return word;
}

// The sums of the whole page at `page`, in address order.
inline PageSums plain_page_sums(const std::byte* page) {
  PageSums sums;
  for (std::size_t i = 0; i < kPageWords; ++i) {
    const std::uint64_t word = load_word(page + i * sizeof(word));
    sums.first += keyed_product(word, kDigestKeys.first()[i]);
    sums.second += keyed_product(word, kDigestKeys.second()[i]);
  }
  return sums;
}

// For each `number`, a bijection of 128 bits. A page's sums go through it with the page's index as `number`, and the
// total over all pages with the slot's length.
constexpr Digest mix128(std::uint64_t first, std::uint64_t second, std::uint64_t number) {
  const std::uint64_t x = mix64(first + (number + 1) * kGolden);
  const std::uint64_t high = mix64(second + x);
  return {.low = mix64(x + high), .high = high};
}

constexpr std::size_t pages_of(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

// The hashes of pages, added up in any order; each half mod 2^64.
struct TileTotal {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  // Adds the pages of one tile, of which `bytes` bytes lie in the slot. `first_page` is the number of its first page.
  constexpr void add_pages(const TileSums& sums, std::uint64_t first_page, std::size_t bytes) {
    for (std::size_t page = 0; page < pages_of(bytes); ++page) {
      const Digest hash = mix128(sums.pages[page].first, sums.pages[page].second, first_page + page);
      low += hash.low;
      high += hash.high;
    }
  }
  // Adds tile number `tile` of a slot.
  constexpr void add(const TileSums& sums, std::uint64_t tile, std::size_t bytes = kTileBytes) {
    add_pages(sums, tile * kTilePages, bytes);
  }
  constexpr void add(const TileTotal& other) {
    low += other.low;
    high += other.high;
  }
  constexpr Digest finish(std::uint64_t length_bytes) const { return mix128(low, high, length_bytes); }
  friend constexpr bool operator==(const TileTotal&, const TileTotal&) = default;
};

}  // namespace bascule::inline v0::kernels
