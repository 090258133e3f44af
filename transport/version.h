// The numbers that name things at both ends: versions, epochs, slots, ranges of bytes.
#pragma once

#include <compare>
#include <cstdint>

namespace bascule::inline v0 {

using Epoch = std::uint64_t;    // one run of the sender
using Version = std::uint64_t;  // only grows, even across epochs; 0: none

inline constexpr Version kLastVersion = (Version{1} << 63) - 1;  // the highest number that a sender gives

// One piece of slot memory. Within an epoch, an index always stands for the same memory.
struct SlotId {
  Epoch epoch = 0;
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(const SlotId&, const SlotId&) = default;
};

// Bytes [begin, end) of a version, or of one of its regions.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// How many bytes of a version a worker reads, and how many of these it verifies.
struct BytesRead {
  std::uint64_t read = 0, verified = 0;  // verified <= read
  friend constexpr bool operator==(const BytesRead&, const BytesRead&) = default;
};

}  // namespace bascule::inline v0
