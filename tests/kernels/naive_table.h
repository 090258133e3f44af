// A digest table, page by page from the definition in docs/design/digest.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <bascule/kernels/digest_function.h>

namespace bascule::inline v0::kernels {

inline std::vector<TileTotal> naive_table(std::span<const std::byte> bytes, std::uint64_t first_page) {
  std::vector<TileTotal> table((bytes.size() + kTileBytes - 1) / kTileBytes);
  for (std::size_t page = 0; page * kPageBytes < bytes.size(); ++page) {
    std::array<std::byte, kPageBytes> extended{};
    const std::size_t begin = page * kPageBytes;
    std::memcpy(extended.data(), bytes.data() + begin, std::min(kPageBytes, bytes.size() - begin));
    const PageSums sums = plain_page_sums(extended.data());
    const Digest hash = mix128(sums.first, sums.second, first_page + page);
    table[page / kTilePages].low += hash.low;
    table[page / kTilePages].high += hash.high;
  }
  return table;
}

}  // namespace bascule::inline v0::kernels
