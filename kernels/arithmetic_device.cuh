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

// A whole tile within one run to which a product is added (TilePath::kProduct). A thread makes 16 bytes of slot at a
// time, which lie in one row.
struct PackProduct {
  const Segment& segment;
  const Arithmetic& arithmetic;
  std::byte* const* addresses;
  std::byte* slot;
  std::uint64_t tile;
  const std::uint64_t* block_keys;
  const DigestOutput& target;

  template <int kCount>  // elements of 16 bytes
  __device__ void run() const {
    const Place place = Place::of_thread<Words::kAdjacent>();
    ThreadSums<Words::kAdjacent> sums(place, block_keys);
    std::byte* const to = slot + tile * kTileBytes;
    const std::uint64_t begin = tile * kTileBytes - segment.slot_offset;
#pragma unroll 1
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      const std::uint32_t at = place.byte_of(step, 0);
      const uint4 words = made<kCount>((begin + at) / (16 / kCount));
      *reinterpret_cast<uint4*>(to + at) = words;
      sums.add(words);
    }
    if (target.totals != nullptr) sums.finish(tile, target);
  }

 private:
  template <int kCount>
  __device__ uint4 made(std::uint64_t element) const {
    float w[kCount], total[kCount] = {};
    load_f32(segment.tensor_dtype,
             addresses[segment.tensor] + segment.tensor_offset + element * bytes_of(segment.tensor_dtype), w);
    const Factor &left = arithmetic.left, &right = arithmetic.right;
    std::uint64_t row = 0, column = 0;
    if (segment.elements <= 0xffffffffU && arithmetic.columns <= 0xffffffffU) {
      row = static_cast<std::uint32_t>(element) / static_cast<std::uint32_t>(arithmetic.columns);
      column = static_cast<std::uint32_t>(element) % static_cast<std::uint32_t>(arithmetic.columns);
    } else {
      row = element / arithmetic.columns;
      column = element % arithmetic.columns;
    }
    const std::uint32_t left_bytes = bytes_of(left.dtype), right_bytes = bytes_of(right.dtype);
    const std::byte* l = addresses[left.tensor] +
                         static_cast<std::int64_t>(row) * left.row_stride * static_cast<std::int64_t>(left_bytes);
    const std::byte* r = addresses[right.tensor] + column * right_bytes;
    const std::int64_t l_step = left.column_stride * static_cast<std::int64_t>(left_bytes);
    const std::int64_t r_step = right.row_stride * static_cast<std::int64_t>(right_bytes);
#pragma unroll 4
    for (std::uint32_t k = 0; k < arithmetic.rank; ++k) {
      float factors[kCount];
      load_f32(right.dtype, r + k * r_step, factors);
      const float factor = f32_of(left.dtype, l + k * l_step);
#pragma unroll
      for (int i = 0; i < kCount; ++i) total[i] = fmaf(factor, factors[i], total[i]);
    }
    std::uint32_t bits[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits[i] = __float_as_uint(fmaf(arithmetic.scale, total[i], w[i]));
    if constexpr (kCount == 4) {
      return {no_payload(bits[0]), no_payload(bits[1]), no_payload(bits[2]), no_payload(bits[3])};
    } else if (segment.slot_dtype == DType::kBF16) {
      return {two_bf16(bits[0], bits[1]), two_bf16(bits[2], bits[3]), two_bf16(bits[4], bits[5]),
              two_bf16(bits[6], bits[7])};
    } else {
      return {two_f16(bits[0], bits[1]), two_f16(bits[2], bits[3]), two_f16(bits[4], bits[5]),
              two_f16(bits[6], bits[7])};
    }
  }
};

}  // namespace bascule::inline v0::kernels::cuda
