// Checks CBOR (RFC 8949) before it reaches any reader that recurses or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace bascule::inline v0 {

inline constexpr std::size_t kMaxCborDepth = 8;           // of nested arrays and maps
inline constexpr std::uint64_t kMaxCborItems = 4u << 20;  // a parsed item takes some 16 to 100 bytes

// Returns OK if the bytes are exactly one item, its depth and number of items are bounded, every length lies within the
// input, map keys are text, and negative integers fit 64 bits. It also refuses indefinite lengths, tags, and simple
// values except false, true and null. INVALID_ARGUMENT says what is wrong and at which byte. Allocates nothing.
absl::Status check_cbor(std::span<const std::uint8_t> bytes);

}  // namespace bascule::inline v0
