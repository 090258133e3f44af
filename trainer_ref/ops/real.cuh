// Elements of float32 and bfloat16, 16 bytes at a time. All arithmetic is in float32; results are rounded where a
// tensor of their type would hold them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace bascule::ref::ops {

template <typename T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));  // elements in 16 bytes

template <typename T>
struct alignas(16) Words {
  uint4 bits;
};

__device__ inline void unpack(const uint4& bits, float (&x)[4]) {
  x[0] = __uint_as_float(bits.x);
  x[1] = __uint_as_float(bits.y);
  x[2] = __uint_as_float(bits.z);
  x[3] = __uint_as_float(bits.w);
}

__device__ inline void unpack(const uint4& bits, float (&x)[8]) {
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
  }
}

__device__ inline std::uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

__device__ inline uint4 pack(const float (&x)[4]) {
  return {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])};
}
__device__ inline uint4 pack(const float (&x)[8]) {
  return {packed(x[0], x[1]), packed(x[2], x[3]), packed(x[4], x[5]), packed(x[6], x[7])};
}

// `from` and `to` are aligned to 16 bytes.
template <typename T>
__device__ inline void load(const T* from, float (&x)[kWidth<T>]) {
  unpack(*reinterpret_cast<const uint4*>(from), x);
}
template <typename T>
__device__ inline void store(T* to, const float (&x)[kWidth<T>]) {
  *reinterpret_cast<uint4*>(to) = pack(x);
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T from_float(float x) {
  if constexpr (sizeof(T) == 2) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// x as a tensor of T would hold it.
template <typename T>
__device__ inline float rounded(float x) {
  return to_float(from_float<T>(x));
}

// Adds the elements at `from`, which is aligned to 16 bytes; the sums are rounded as a tensor of T would hold them.
template <typename T>
__device__ inline void add_rounded(float (&x)[kWidth<T>], const T* from) {
  float y[kWidth<T>];
  load(from, y);
#pragma unroll
  for (int i = 0; i < kWidth<T>; ++i) x[i] = rounded<T>(x[i] + y[i]);
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffU, x, lanes);
  return x;
}

}  // namespace bascule::ref::ops
