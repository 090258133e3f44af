// Arithmetic of arithmetic.h on a device: the twin of gather_arithmetic.cpp, with the same steps in the same order. The
// compiler may neither fuse nor split them, and keeps denormals (nvcc's defaults for fmaf, __fmul_rn and -ftz).
#pragma once

#include <cstdint>
#include <type_traits>

#include <bascule/kernels/arithmetic.h>
#include <bascule/kernels/cuda_table.h>
#include <bascule/kernels/element_device.cuh>

namespace bascule::inline v0::kernels::cuda {

// `dtype` widens to F32 (arithmetic.h). NaNs may keep their payload: only results are rounded.
__device__ inline float f32_of(DType dtype, const std::byte* element) {
  if (dtype == DType::kF32) return __uint_as_float(static_cast<std::uint32_t>(load_element(element, 4)));
  const auto half = static_cast<std::uint32_t>(load_element(element, 2));
  return __uint_as_float(dtype == DType::kBF16 ? half << 16 : f32_of_f16(half));
}

enum class Reads { kOnce, kAgain };  // kOnce leaves the L1 cache to what is read again

// Loads 4, 8 or 16 bytes that no thread of the kernel writes.
template <Reads kReads, typename Vector>
__device__ inline Vector load_constant(const std::byte* from) {
  if constexpr (kReads == Reads::kAgain) return __ldg(reinterpret_cast<const Vector*>(from));
  Vector v;
  if constexpr (sizeof(Vector) == 4) asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  if constexpr (sizeof(Vector) == 8)
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  if constexpr (sizeof(Vector) == 16)
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
  return v;
}

// Loads kCount adjacent elements, 2 or 4 of them, in one step. The address is a multiple of all their bytes, and no
// thread of the kernel writes there.
template <DType kFrom, Reads kReads, int kCount>
__device__ inline void load_together(const std::byte* from, float (&values)[kCount]) {
  if constexpr (kFrom == DType::kF32 && kCount == 4) {
    const auto words = load_constant<kReads, uint4>(from);
    values[0] = __uint_as_float(words.x), values[1] = __uint_as_float(words.y);
    values[2] = __uint_as_float(words.z), values[3] = __uint_as_float(words.w);
  } else if constexpr (kFrom == DType::kF32) {
    const auto words = load_constant<kReads, uint2>(from);
    values[0] = __uint_as_float(words.x), values[1] = __uint_as_float(words.y);
  } else {
    std::uint32_t pairs[kCount / 2];
    if constexpr (kCount == 4) {
      const auto words = load_constant<kReads, uint2>(from);
      pairs[0] = words.x, pairs[1] = words.y;
    } else {
      pairs[0] = load_constant<kReads, std::uint32_t>(from);
    }
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const std::uint32_t two = pairs[i / 2];
      values[i] = __uint_as_float(kFrom == DType::kBF16 ? two << 16 : f32_of_f16(two & 0xffffU));
      values[i + 1] = __uint_as_float(kFrom == DType::kBF16 ? two & 0xffff0000U : f32_of_f16(two >> 16));
    }
  }
}

// Loads kCount adjacent elements from any address, of any type that widens to F32.
template <int kCount>
__device__ inline void load_each(DType dtype, const std::byte* from, float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = f32_of(dtype, from + static_cast<std::uint32_t>(i) * bytes_of(dtype));
}

// Calls body(load) with a function that loads kCount adjacent elements from an address that differs from `like` by a
// multiple of `bytes`, the size of kCount elements.
template <Reads kReads, int kCount, typename Body>
__device__ inline void by_type(DType dtype, std::uint32_t bytes, std::uint64_t like, const Body& body) {
  using Values = float(&)[kCount];
  if ((like & (bytes - 1)) != 0) {
    body([dtype](const std::byte* from, Values values) { load_each<kCount>(dtype, from, values); });
  } else if (dtype == DType::kF32) {
    body([](const std::byte* from, Values values) { load_together<DType::kF32, kReads, kCount>(from, values); });
  } else if (dtype == DType::kBF16) {
    body([](const std::byte* from, Values values) { load_together<DType::kBF16, kReads, kCount>(from, values); });
  } else {
    body([](const std::byte* from, Values values) { load_together<DType::kF16, kReads, kCount>(from, values); });
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

}  // namespace bascule::inline v0::kernels::cuda
