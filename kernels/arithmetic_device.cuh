// Arithmetic of arithmetic.h on a device: the twin of gather_arithmetic.cpp, with the same steps in the same order. The
// compiler may neither fuse nor split them, and keeps denormals (nvcc's defaults for fmaf, __fmul_rn and -ftz).
#pragma once

#include <cstdint>

#include <bascule/kernels/arithmetic.h>
#include <bascule/kernels/cuda_table.h>
#include <bascule/kernels/element_device.cuh>

namespace bascule::inline v0::kernels::cuda {

__device__ inline float f32_of(DType dtype, const std::byte* element) {
  const std::uint32_t bytes = bytes_of(dtype);
  return __uint_as_float(static_cast<std::uint32_t>(cast_element(load_element(element, bytes), dtype, DType::kF32)));
}

// Loads kCount adjacent elements, 8 or 4 of them, in one or two steps if their address allows it.
template <int kCount>
__device__ inline void load_f32(DType dtype, const std::byte* from, float (&values)[kCount]) {
  const std::uint32_t bytes = bytes_of(dtype);
  if (reinterpret_cast<std::uintptr_t>(from) % (dtype == DType::kF32 ? 16 : 2 * kCount) != 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = f32_of(dtype, from + static_cast<std::uint32_t>(i) * bytes);
    return;
  }
  if (dtype == DType::kF32) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + 4 * i);
      values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const std::uint32_t two = *reinterpret_cast<const std::uint32_t*>(from + 2 * i);  // joined to wider loads
    values[i] = __uint_as_float(dtype == DType::kBF16 ? two << 16 : f32_of_f16(two & 0xffffU));
    values[i + 1] = __uint_as_float(dtype == DType::kBF16 ? two & 0xffff0000U : f32_of_f16(two >> 16));
  }
}

// The bits of a slot's element, from an F32 result.
__device__ inline std::uint64_t round_to(DType slot, float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return slot == DType::kF32 ? no_payload(bits) : cast_element(bits, DType::kF32, slot);
}

// One element, counted in C order, whose value in the tensor is `w`.
__device__ inline float computed(const Arithmetic& arithmetic, std::byte* const* addresses, std::uint64_t element,
                                 float w) {
  if (arithmetic.rank == 0) return __fmul_rn(w, arithmetic.scale);
  const Factor &left = arithmetic.left, &right = arithmetic.right;
  const auto row = static_cast<std::int64_t>(element / arithmetic.columns);
  const auto column = static_cast<std::int64_t>(element % arithmetic.columns);
  const auto left_bytes = static_cast<std::int64_t>(bytes_of(left.dtype));
  const auto right_bytes = static_cast<std::int64_t>(bytes_of(right.dtype));
  const std::byte* l = addresses[left.tensor] + row * left.row_stride * left_bytes;
  const std::byte* r = addresses[right.tensor] + column * right.column_stride * right_bytes;
  float sum = 0;
  for (std::uint32_t k = 0; k < arithmetic.rank; ++k) {
    sum = fmaf(f32_of(left.dtype, l), f32_of(right.dtype, r), sum);
    l += left.column_stride * left_bytes;
    r += right.row_stride * right_bytes;
  }
  return fmaf(arithmetic.scale, sum, w);
}

// A whole tile within one run to which a product is added (TilePath::kProduct), in units of 16 bytes of slot, each of
// which lies in one row. A thread makes kRows units below each other at a time: it loads the right factor's columns
// once for all of them. The left factor's rows lie in shared memory.
//
//   a tile, with `across` units in a row of the matrix: column0 ┌──────────────┐ row 0 of the tile
//                                        ┌──────────────────────┘ t           │
//                                        │                        t + across  │ kRows units of one thread
//                                        └──────────────────────────┘
struct PackProduct {
  const Segment& segment;
  const Arithmetic& arithmetic;
  std::byte* const* addresses;
  std::byte* slot;
  std::uint64_t tile;
  const std::uint64_t* block_keys;
  const DigestOutput& target;

  static constexpr std::uint32_t kLeft = 6144;  // floats of shared memory

  template <int kCount>  // elements of 16 bytes
  __device__ void run(float* left) const {
    const std::uint64_t first = (tile * kTileBytes - segment.slot_offset) / 16, across = arithmetic.columns / kCount;
    const std::uint64_t row0 = first / across;
    const auto column0 = static_cast<std::uint32_t>(first % across);
    const bool tall = across * 6 <= kUnits;  // many rows lie in a tile
    const auto rows = static_cast<std::uint32_t>((column0 + kUnits - 1) / across + 1);
    if (across < (1U << 31) && (rows + (tall ? 8 : 4)) * arithmetic.rank <= kLeft) {
      for (std::uint32_t i = threadIdx.x; i < rows * arithmetic.rank; i += kThreads)
        left[i] = left_factor(row0 + i / arithmetic.rank, i % arithmetic.rank);
      __syncthreads();
      const Shape shape{first, static_cast<std::uint32_t>(across), column0};
      switch (arithmetic.right.dtype) {
        case DType::kBF16: by_rows<kCount, DType::kBF16>(shape, left, tall); break;
        case DType::kF16: by_rows<kCount, DType::kF16>(shape, left, tall); break;
        default: by_rows<kCount, DType::kF32>(shape, left, tall);
      }
    } else {
#pragma unroll 1
      for (std::uint32_t unit = threadIdx.x; unit < kUnits; unit += kThreads) make_alone<kCount>(first, unit);
    }
    if (target.totals == nullptr) return;
    __syncthreads();  // the tile is read again from the slot, which is in the caches now
    LoadedTile::load(slot, tile, target.bytes).sums(block_keys).finish(tile, target);
  }

 private:
  static constexpr std::uint32_t kUnits = kTileBytes / 16;
  struct Shape {
    std::uint64_t first;    // the tile's first unit, counted in the matrix
    std::uint32_t across;   // units of a row
    std::uint32_t column0;  // of `first`
  };

  __device__ float left_factor(std::uint64_t row, std::uint32_t k) const {
    const Factor& left = arithmetic.left;
    const std::int64_t element = static_cast<std::int64_t>(row) * left.row_stride + k * left.column_stride;
    return f32_of(left.dtype, addresses[left.tensor] + element * static_cast<std::int64_t>(bytes_of(left.dtype)));
  }

  template <int kCount, DType kRight>
  __device__ void by_rows(const Shape& shape, const float* left, bool tall) const {
    tall ? make_rows<kCount, kRight, 8>(shape, left) : make_rows<kCount, kRight, 4>(shape, left);
  }

  template <int kCount, DType kRight, int kRows>
  __device__ void make_rows(const Shape& shape, const float* left) const {
    const std::uint32_t wide = min(shape.across, kUnits), groups = (kUnits + kRows * wide - 1) / (kRows * wide);
    const std::int64_t step = arithmetic.right.row_stride * static_cast<std::int64_t>(bytes_of(kRight));
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < wide * groups; i += kThreads) {
      const std::uint32_t group = i / wide, t = i % wide;
      std::uint32_t column = shape.column0 + t, row = group * kRows;
      if (column >= shape.across) column -= shape.across, ++row;
      const std::byte* right =
          addresses[arithmetic.right.tensor] + static_cast<std::uint64_t>(column) * (kCount * bytes_of(kRight));
      const float* factor = left + row * arithmetic.rank;
      float total[kRows][kCount] = {};
#pragma unroll 2
      for (std::uint32_t k = 0; k < arithmetic.rank; ++k, right += step, ++factor) {
        float factors[kCount];
        load_f32(kRight, right, factors);
#pragma unroll
        for (int j = 0; j < kRows; ++j)
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            total[j][e] = fmaf(factor[static_cast<std::uint32_t>(j) * arithmetic.rank], factors[e], total[j][e]);
      }
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const std::uint32_t unit = t + (group * kRows + static_cast<std::uint32_t>(j)) * wide;
        if (unit < kUnits) finish(shape.first, unit, total[j]);
      }
    }
  }

  // One unit by itself, if the left factor's rows are too many for shared memory.
  template <int kCount>
  __device__ void make_alone(std::uint64_t first, std::uint32_t unit) const {
    const std::uint64_t element = (first + unit) * kCount, row = element / arithmetic.columns;
    const Factor& right = arithmetic.right;
    const std::byte* from = addresses[right.tensor] + element % arithmetic.columns * bytes_of(right.dtype);
    const std::int64_t step = right.row_stride * static_cast<std::int64_t>(bytes_of(right.dtype));
    float total[kCount] = {};
    for (std::uint32_t k = 0; k < arithmetic.rank; ++k, from += step) {
      float factors[kCount];
      load_f32(right.dtype, from, factors);
      const float factor = left_factor(row, k);
#pragma unroll
      for (int e = 0; e < kCount; ++e) total[e] = fmaf(factor, factors[e], total[e]);
    }
    finish(first, unit, total);
  }

  template <int kCount>
  __device__ void finish(std::uint64_t first, std::uint32_t unit, const float (&total)[kCount]) const {
    float w[kCount];
    load_f32(
        segment.tensor_dtype,
        addresses[segment.tensor] + segment.tensor_offset + (first + unit) * kCount * bytes_of(segment.tensor_dtype),
        w);
    std::uint32_t bits[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) bits[e] = __float_as_uint(fmaf(arithmetic.scale, total[e], w[e]));
    *reinterpret_cast<uint4*>(slot + tile * kTileBytes + unit * 16) = rounded(bits);
  }

  __device__ static uint4 rounded(const std::uint32_t (&bits)[4]) {
    return {no_payload(bits[0]), no_payload(bits[1]), no_payload(bits[2]), no_payload(bits[3])};
  }
  __device__ uint4 rounded(const std::uint32_t (&bits)[8]) const {
    if (segment.slot_dtype == DType::kBF16)
      return {two_bf16(bits[0], bits[1]), two_bf16(bits[2], bits[3]), two_bf16(bits[4], bits[5]),
              two_bf16(bits[6], bits[7])};
    return {two_f16(bits[0], bits[1]), two_f16(bits[2], bits[3]), two_f16(bits[4], bits[5]), two_f16(bits[6], bits[7])};
  }
};

}  // namespace bascule::inline v0::kernels::cuda
