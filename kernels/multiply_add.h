// The inner loops of arithmetic with a product: w[i][j] += scale * sum over k of left[i][k] * right[k][j], in F32.
//
// `right` is first copied to a panel, in the order in which multiply_add() reads it. (Its rows often lie a multiple of
// 4 KiB apart, and would push each other out of the first cache.)
//
//   panel   | columns 0 to 15: row 0, row 1, ... row rank-1 | columns 16 to 31: row 0, ... | ...
#pragma once

#include <cstddef>

#include <bascule/kernels/dtype.h>

namespace bascule::inline v0::kernels {

inline constexpr std::size_t kProductRows = 4;    // rows of w and left per call, at most
inline constexpr std::size_t kPanelColumns = 16;  // columns of one block of a panel

// Makes a panel of `columns` columns, a multiple of kPanelColumns, from `rank` runs that begin `stride` bytes apart.
using MakePanel = void (*)(const std::byte* right, std::size_t stride, std::size_t rank, std::size_t columns,
                           float* panel);
MakePanel plain_make_panel(DType right);  // for a type that widens to F32

// `left` has `rows` rows of `rank` elements, and `w` as many rows of `columns` elements, both without gaps. Each
// element's sum starts at zero and grows in the order of k; each step is one fused multiply-add, and so is the addition
// to w.
using MultiplyAdd = void (*)(std::size_t rows, const float* left, const float* panel, std::size_t rank,
                             std::size_t columns, float scale, float* w);
void plain_multiply_add(std::size_t rows, const float* left, const float* panel, std::size_t rank, std::size_t columns,
                        float scale, float* w);

}  // namespace bascule::inline v0::kernels
