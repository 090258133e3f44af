// The numbers that name things on both sides: versions, epochs, slots.
#pragma once

#include <compare>
#include <cstdint>

namespace bascule {

using Epoch = std::uint64_t;    // one run of the sender
using Version = std::uint64_t;  // only grows, also across epochs; 0: none

// One piece of slot memory. An index is never given to other memory within an epoch.
struct SlotId {
  Epoch epoch = 0;
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(const SlotId&, const SlotId&) = default;
};

}  // namespace bascule
