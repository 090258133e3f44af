#include <bascule/kernels/multiply_add.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
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

void plain_round(const float* values, std::size_t count, DType slot, std::byte* target) {
  if (slot != DType::kF32)
    return plain_run_cast(DType::kF32, slot)(reinterpret_cast<const std::byte*>(values), target, count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::isnan(values[i]) ? 0x7fffffffU : std::bit_cast<std::uint32_t>(values[i]);
    std::memcpy(target + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void plain_multiply_add(const ProductRows& product) {
  for (std::size_t r = 0; r < product.rows; ++r) {
    const float* const left = product.left + r * product.rank;
    for (std::size_t c = 0; c < product.columns; c += kPanelColumns) {
      const float* const panel = product.panel + c * product.rank;
      std::array<float, kPanelColumns> sums{}, values{};
      for (std::size_t k = 0; k < product.rank; ++k)
        for (std::size_t i = 0; i < kPanelColumns; ++i)
          sums[i] = std::fma(left[k], panel[k * kPanelColumns + i], sums[i]);
      const std::byte* const w = product.w + r * product.w_stride + c * size_of(product.w_dtype);
      if (product.w_dtype == DType::kF32) {
        std::memcpy(values.data(), w, sizeof(values));
      } else {
        plain_run_cast(product.w_dtype, DType::kF32)(w, reinterpret_cast<std::byte*>(values.data()), kPanelColumns);
      }
      for (std::size_t i = 0; i < kPanelColumns; ++i) values[i] = std::fma(product.scale, sums[i], values[i]);
      plain_round(values.data(), kPanelColumns, product.slot_dtype,
                  product.target + r * product.target_stride + c * size_of(product.slot_dtype));
    }
  }
}

}  // namespace bascule::inline v0::kernels
