// The inner loops of arithmetic with a product: target[i][j] = w[i][j] + scale * sum over k of left[i][k] *
// right[k][j], computed in F32 and rounded once.
//
// `right` is first copied to a panel, in the order in which multiply_add() reads it. (Its rows often lie a multiple of
// 4 KiB apart, and would push each other out of the first cache.)
//
//   panel   | columns 0 to 15: row 0, row 1, ... row rank-1 | columns 16 to 31: row 0, ... | ...
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::inline v0::kernels {

struct TileSums;

inline constexpr std::size_t kPanelColumns = 16;   // columns of one block of a panel
inline constexpr std::size_t kMostColumns = 1024;  // of one multiply_add()
inline constexpr std::size_t kLineBytes = 64;

// Makes a panel of `columns` columns, a multiple of kPanelColumns, from `rank` runs that begin `stride` bytes apart.
using MakePanel = void (*)(const std::byte* right, std::size_t stride, std::size_t rank, std::size_t columns,
                           float* panel);
MakePanel plain_make_panel(DType right);  // for a type that widens to F32

// Rows of a matrix, to which a product is added. `left` has `rank` elements per row, without gaps; the rows of w and of
// the target are `w_stride` and `target_stride` bytes apart, at any alignment. The target may be where w is, with the
// same stride. The rows of w that follow are prefetched.
//
// With `sums`, the target is a slot, and its rows are whole lines of kLineBytes. They go past the caches, as a
// TileWriter's do, and are added to the sums of their tiles. The target begins `target_offset` bytes after the first
// tile of `sums`. The plain processor cannot do this.
struct ProductRows {
  std::size_t rows = 0, columns = 0, rank = 0;  // columns: a multiple of kPanelColumns, at most kMostColumns
  float scale = 1;
  const float *left = nullptr, *panel = nullptr;
  DType w_dtype = DType::kF32;  // F32, or the slot's type
  DType slot_dtype = DType::kF32;
  const std::byte* w = nullptr;
  std::byte* target = nullptr;
  std::size_t w_stride = 0, target_stride = 0;
  TileSums* sums = nullptr;
  std::uint64_t target_offset = 0;
};

// Each element's sum starts at zero and grows in the order of k; each step is one fused multiply-add, and so is the
// addition to w. A NaN becomes the slot type's NaN with all bits but the sign set.
using MultiplyAdd = void (*)(const ProductRows& product);
void plain_multiply_add(const ProductRows& product);

// Calls run.operator()<the type of w, the slot's type>().
template <typename Run>
void by_types(const ProductRows& product, const Run& run) {
  const bool wide = product.w_dtype == DType::kF32;
  switch (product.slot_dtype) {
    case DType::kBF16:
      return wide ? run.template operator()<DType::kF32, DType::kBF16>()
                  : run.template operator()<DType::kBF16, DType::kBF16>();
    case DType::kF16:
      return wide ? run.template operator()<DType::kF32, DType::kF16>()
                  : run.template operator()<DType::kF16, DType::kF16>();
    default: return run.template operator()<DType::kF32, DType::kF32>();
  }
}

// Rounds F32 to another type that widens to it. To F32, it only replaces NaNs.
void plain_round(const float* values, std::size_t count, DType slot, std::byte* target);

}  // namespace bascule::inline v0::kernels
