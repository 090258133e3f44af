// A look at CBOR (RFC 8949) before a reader that recurses, and allocates as it goes, is given the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace bascule::inline v0 {

inline constexpr std::size_t kMaxCborDepth = 8;           // of arrays and maps in one another
inline constexpr std::uint64_t kMaxCborItems = 4u << 20;  // a parsed item takes some 16 to 100 bytes

// OK: the bytes are one item and nothing after it, of bounded depth and number of items, every length lies
// within the input, maps have text for keys, and negative integers fit 64 bits. INVALID_ARGUMENT says what is
// wrong and at which byte; lengths without end, tags and simple values but false, true and null are refused
// as well. Takes no memory.
absl::Status check_cbor(std::span<const std::uint8_t> bytes);

}  // namespace bascule::inline v0
