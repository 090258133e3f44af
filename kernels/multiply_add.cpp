#include <bascule/kernels/multiply_add.h>

#include <array>
#include <cmath>
#include <cstring>

#include <bascule/kernels/cast_run.h>

namespace bascule::inline v0::kernels {
namespace {

template <DType kRight>
void make_panel(const std::byte* right, std::size_t stride, std::size_t rank, std::size_t columns, float* panel) {
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t c = 0; c < columns; c += kPanelColumns) {
      const std::byte* const from = right + k * stride + c * size_of(kRight);
      auto* const to = reinterpret_cast<std::byte*>(panel + c * rank + k * kPanelColumns);
      if constexpr (kRight == DType::kF32) {
        std::memcpy(to, from, kPanelColumns * sizeof(float));
      } else {
        plain_run_cast(kRight, DType::kF32)(from, to, kPanelColumns);
      }
    }
  }
}

}  // namespace

MakePanel plain_make_panel(DType right) {
  switch (right) {
    case DType::kBF16: return make_panel<DType::kBF16>;
    case DType::kF16: return make_panel<DType::kF16>;
    default: return make_panel<DType::kF32>;
  }
}

void plain_multiply_add(std::size_t rows, const float* left, const float* panel, std::size_t rank, std::size_t columns,
                        float scale, float* w) {
  for (std::size_t c = 0; c < columns; ++c) {
    const float* const block = panel + c / kPanelColumns * kPanelColumns * rank + c % kPanelColumns;
    std::array<float, kProductRows> sums{};
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t r = 0; r < rows; ++r) sums[r] = std::fma(left[r * rank + k], block[k * kPanelColumns], sums[r]);
    for (std::size_t r = 0; r < rows; ++r) w[r * columns + c] = std::fma(scale, sums[r], w[r * columns + c]);
  }
}

}  // namespace bascule::inline v0::kernels
