// How the host and a GPU make the elements of content.h from their words. Element i of a tensor has the word
// first + i * kStride (mod 2^32).
#pragma once

#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::bench {

inline constexpr std::uint32_t kStride = 0x9E3779B1;  // odd, so a word repeats only after 2^32 elements

struct F32Element {
  constexpr std::uint32_t operator()(std::uint32_t word) const { return (word & 0x80ffffff) | 0x3f000000; }
};
struct BF16Element {
  constexpr std::uint16_t operator()(std::uint32_t word) const {
    return static_cast<std::uint16_t>(((word >> 16) & 0x80ff) | 0x3f00);
  }
};
struct BF16OfF32Element {  // to nearest, ties to even; there are no NaNs here
  constexpr std::uint16_t operator()(std::uint32_t word) const {
    const std::uint32_t bits = F32Element{}(word);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// Calls run() with the function that makes elements of type `slot` from elements of type `trainer`; each is F32 or
// BF16.
template <typename Run>
auto with_element(DType trainer, DType slot, Run run) {
  if (slot == DType::kF32) return run(F32Element{});
  if (trainer == DType::kF32) return run(BF16OfF32Element{});
  return run(BF16Element{});
}

}  // namespace bascule::bench
