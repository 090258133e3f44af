// Arithmetic: what pack does to a segment's elements between loading and rounding them, for adapters of low rank.
//
//   rank 0:   element = scale * w
//   rank r:   element = w + scale * (left[i][0] * right[0][j] + ... + left[i][r-1] * right[r-1][j])
//
// where w is the tensor's element, and i and j are its row and column. All of it is F32: operands are widened, the sum
// starts at zero and grows in the order of the rank, every step is one fused multiply-add, and only the result is
// rounded to the slot's type. A NaN becomes the slot type's NaN with all bits but the sign set, as in a cast. So the
// same operands give the same bits on every processor, whatever the calling thread's rounding mode.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::inline v0::kernels {

inline constexpr std::uint32_t kNoArithmetic = UINT32_MAX;  // for Segment::arithmetic
inline constexpr std::uint32_t kMaxProductRank = 512;       // the largest rank that vLLM serves

// One factor of the product: F32, BF16 or F16, with any strides.
struct Factor {
  std::uint32_t tensor = 0;  // index into the list of tensor addresses
  DType dtype = DType::kF32;
  std::int64_t row_stride = 0, column_stride = 0;  // elements
  friend bool operator==(const Factor&, const Factor&) = default;
};

struct Arithmetic {
  float scale = 1;
  std::uint32_t rank = 0;     // at most kMaxProductRank
  std::uint64_t columns = 1;  // of the tensor: its element e, in C order, has row e / columns and column e % columns
  Factor left{}, right{};     // [rows, rank] and [rank, columns]
  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

// Whether pack can do arithmetic on elements of this type: one that F32 has room for.
constexpr bool widens_to_f32(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace bascule::inline v0::kernels
