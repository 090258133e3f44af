// Tensors with arithmetic: scaled ones, and ones to which a product of low rank is added; and a naive pack of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "layouts.h"

namespace bascule::inline v0::kernels {

inline float f32_of(DType dtype, const std::byte* element) {
  float value = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&value, element, sizeof(value));
  } else {
    plain_run_cast(dtype, DType::kF32)(element, reinterpret_cast<std::byte*>(&value), 1);
  }
  return value;
}

inline void store_f32(float value, DType dtype, std::byte* element) {
  if (dtype != DType::kF32)
    return plain_run_cast(DType::kF32, dtype)(reinterpret_cast<const std::byte*>(&value), element, 1);
  const std::uint32_t bits = std::isnan(value) ? 0x7fffffffU : std::bit_cast<std::uint32_t>(value);
  std::memcpy(element, &bits, sizeof(bits));
}

struct Adapters {
  Tensors tensors;
  std::vector<Arithmetic> arithmetic;

  // Replaces random bits, which may be NaN or infinity, by numbers of the size that weights have.
  void fill(std::size_t tensor, DType dtype, std::mt19937_64& random) {
    std::normal_distribution<float> normal(0, 0.5F);
    std::vector<std::byte>& storage = tensors.storages[tensor];
    const auto shift = static_cast<std::size_t>(tensors.addresses[tensor] - storage.data());
    for (std::size_t at = shift; at + size_of(dtype) <= storage.size(); at += size_of(dtype))
      store_f32(normal(random), dtype, storage.data() + at);
  }

  // A contiguous matrix that is a factor, not a part of the slot.
  Factor factor(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed, std::mt19937_64& random) {
    Tensors& all = tensors;
    all.storages.emplace_back(static_cast<std::size_t>(rows * columns) * size_of(dtype));
    all.addresses.push_back(all.storages.back().data());
    fill(all.storages.size() - 1, dtype, random);
    return {.tensor = static_cast<std::uint32_t>(all.addresses.size() - 1),
            .dtype = dtype,
            .row_stride = transposed ? 1 : columns,
            .column_stride = transposed ? rows : 1};
  }

  void scale(DType from, DType to, const std::vector<std::int64_t>& shape, float by, bool wild,
             std::mt19937_64& random) {
    std::vector<std::size_t> order(shape.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (random() % 2 == 0) std::reverse(order.begin(), order.end());
    tensors.add(from, to, shape, order, 0, false, 0, random);
    if (!wild) fill(tensors.storages.size() - 1, from, random);
    tensors.segments.back().arithmetic = static_cast<std::uint32_t>(arithmetic.size());
    arithmetic.push_back({.scale = by});
  }

  struct Types {
    DType from, to, left, right;
  };
  void merge(const Types& types, std::int64_t rows, std::int64_t columns, std::int64_t rank, float by, bool transposed,
             std::mt19937_64& random) {
    tensors.add(types.from, types.to, {rows * columns}, {0}, 0, false, 0, random);
    fill(tensors.storages.size() - 1, types.from, random);
    const auto own = static_cast<std::uint32_t>(tensors.addresses.size() - 1);
    tensors.segments.back().tensor = own;
    tensors.segments.back().arithmetic = static_cast<std::uint32_t>(arithmetic.size());
    const Factor left = factor(types.left, rows, rank, transposed, random);
    const Factor right = factor(types.right, rank, columns, transposed, random);
    arithmetic.push_back({.scale = by,
                          .rank = static_cast<std::uint32_t>(rank),
                          .columns = static_cast<std::uint64_t>(columns),
                          .left = left,
                          .right = right});
  }
};

// A factor's elements, row by row.
inline std::vector<float> values_of(const Tensors& tensors, const Factor& factor, std::int64_t rows,
                                    std::int64_t columns) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      values.push_back(f32_of(
          factor.dtype, tensors.addresses[factor.tensor] + (row * factor.row_stride + column * factor.column_stride) *
                                                               static_cast<std::int64_t>(size_of(factor.dtype))));
  return values;
}

// Element by element, by the formula of arithmetic.h.
inline std::vector<std::byte> naive_pack(const Adapters& adapters) {
  const Tensors& tensors = adapters.tensors;
  std::vector<std::byte> slot = naive_pack(tensors);
  for (const Segment& segment : tensors.segments) {
    if (segment.arithmetic == kNoArithmetic) continue;
    const Arithmetic& wanted = adapters.arithmetic[segment.arithmetic];
    const auto rank = std::int64_t{wanted.rank}, columns = static_cast<std::int64_t>(wanted.columns);
    std::vector<float> left, right;
    if (rank > 0) {
      left = values_of(tensors, wanted.left, static_cast<std::int64_t>(segment.elements) / columns, rank);
      right = values_of(tensors, wanted.right, rank, columns);
    }
    for (std::uint64_t element = 0; element < segment.elements; ++element) {
      std::int64_t from = 0;
      const auto index = index_of(segment, element);
      for (std::uint32_t d = 0; d < segment.rank; ++d) from += index[d] * segment.tensor_strides[d];
      const float w = f32_of(segment.tensor_dtype, tensors.addresses[segment.tensor] + segment.tensor_offset +
                                                       from * static_cast<std::int64_t>(size_of(segment.tensor_dtype)));
      float value = w * wanted.scale;
      if (wanted.rank > 0) {
        float sum = 0;
        const float* row = &left[element / wanted.columns * wanted.rank];
        const float* column = &right[element % wanted.columns];
        for (std::uint32_t k = 0; k < wanted.rank; ++k) sum = std::fma(row[k], column[k * wanted.columns], sum);
        value = std::fma(wanted.scale, sum, w);
      }
      store_f32(value, segment.slot_dtype, slot.data() + segment.slot_offset + element * size_of(segment.slot_dtype));
    }
  }
  return slot;
}

// Plain tensors, scaled ones and merged ones in any order, of any types and shapes.
inline Adapters random_adapters(std::uint64_t seed, int count, std::int64_t most) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  const auto type = [&] { return kTypes[pick(3)]; };
  Adapters adapters;
  for (int i = 0; i < count; ++i) {
    const auto by = static_cast<float>(pick(9) - 4) * 0.37F;
    switch (pick(4)) {
      case 0: adapters.tensors.add_run(DType::kU8, DType::kU8, pick(100), random); break;
      case 1: adapters.scale(type(), type(), {1 + pick(most), 1 + pick(40)}, by, pick(2) == 0, random); break;
      default:
        adapters.merge({type(), type(), type(), type()}, 1 + pick(most), 1 + pick(300),
                       1 + pick(pick(4) == 0 ? 256 : 16), by, pick(3) == 0, random);
    }
  }
  return adapters;
}

}  // namespace bascule::inline v0::kernels
