// Elements of float32 and bfloat16 in host memory, for the plain twins of kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::ref::ops::plain {

// The bfloat16 nearest to x, ties to even; NaNs stay NaNs.
inline std::uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
inline float of_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// A tensor's elements in order, F32 or BF16.
struct Reals {
  void* data = nullptr;
  DType dtype = DType::kF32;

  float operator[](std::size_t i) const {
    return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                                : of_bf16(static_cast<const std::uint16_t*>(data)[i]);
  }
  float rounded(float x) const { return dtype == DType::kF32 ? x : of_bf16(bf16_of(x)); }
  // The element with its update's, if there is an update.
  float with(const Reals& update, std::size_t i) const {
    return update.data == nullptr ? (*this)[i] : rounded((*this)[i] + update[i]);
  }
  void set(std::size_t i, float x) const {
    if (dtype == DType::kF32) {
      static_cast<float*>(data)[i] = x;
    } else {
      static_cast<std::uint16_t*>(data)[i] = bf16_of(x);
    }
  }
};

}  // namespace bascule::ref::ops::plain
