// Converts between bytes of tensors and words of a slot, for the paths of tile_table.h. The twin of avx2_load.h, with
// cast.h as the reference.
//
// The conversion instructions round to nearest even, keep denormals, and turn a NaN into 0x7FFF or 0x7FFFFFFF like
// cast.h.
#pragma once

#include <cstdint>

#include <bascule/kernels/cast.h>
#include <bascule/kernels/digest_device.cuh>
#include <bascule/kernels/tile_table.h>

namespace bascule::inline v0::kernels::cuda {

// Loads 16 or 8 bytes from an address that is a multiple of kAlignment, in the widest steps that this allows.
template <int kAlignment, typename Vector>
__device__ inline Vector load(const std::byte* from) {
  if constexpr (kAlignment >= static_cast<int>(sizeof(Vector))) {
    return *reinterpret_cast<const Vector*>(from);
  } else {
    union {
      Vector vector;
      std::uint8_t bytes[sizeof(Vector)];
      std::uint16_t halves[sizeof(Vector) / 2];
      std::uint32_t words[sizeof(Vector) / 4];
    } value;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Vector)) / kAlignment; ++i) {
      if constexpr (kAlignment == 1) value.bytes[i] = reinterpret_cast<const std::uint8_t*>(from)[i];
      if constexpr (kAlignment == 2) value.halves[i] = reinterpret_cast<const std::uint16_t*>(from)[i];
      if constexpr (kAlignment == 4) value.words[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
    }
    return value.vector;
  }
}

// A lane's 16 bytes at any address, while the next lane has those that follow, unless they are another tensor's. A lane
// loads the 16 bytes in which its own begin, at a multiple of 16, and gets the rest from the next lane. The constructor
// only starts the loads, so that the loads of several objects are in flight together. All lanes call both.
class Shifted {
 public:
  // Reads nothing outside [begin, end): beyond, there may be no memory.
  __device__ Shifted(const std::byte* from, const std::byte* begin, const std::byte* end) : from_(from) {
    const std::uint32_t past = this->past();
    const auto* const whole = reinterpret_cast<const uint4*>(from - past);
    is_inside_ = past == 0 || (from - past >= begin && from - past + 32 <= end);
    if (past == 0 || from - past >= begin) first_ = whole[0];
    if (is_inside_ && past != 0 && threadIdx.x % 32 == 31) second_ = whole[1];
  }
  __device__ uint4 get() const {
    uint4 second = {__shfl_down_sync(~0U, first_.x, 1), __shfl_down_sync(~0U, first_.y, 1),
                    __shfl_down_sync(~0U, first_.z, 1), __shfl_down_sync(~0U, first_.w, 1)};
    if (!is_inside_) return load<1, uint4>(from_);
    if (threadIdx.x % 32 == 31) second = second_;
    const std::uint32_t past = this->past(), bits = past % 4 * 8;
    std::uint32_t words[8] = {first_.x, first_.y, first_.z, first_.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = (past & 8) != 0 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = (past & 4) != 0 ? words[i + 1] : words[i];
    return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
            __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
  }

 private:
  __device__ std::uint32_t past() const {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from_) % 16);
  }
  const std::byte* from_;
  uint4 first_ = {}, second_ = {};
  bool is_inside_;
};

template <int kAlignment, typename Vector>
__device__ inline void store(std::byte* to, const Vector& vector) {
  if constexpr (kAlignment >= static_cast<int>(sizeof(Vector))) {
    *reinterpret_cast<Vector*>(to) = vector;
  } else {
    union {
      Vector vector;
      std::uint8_t bytes[sizeof(Vector)];
      std::uint16_t halves[sizeof(Vector) / 2];
      std::uint32_t words[sizeof(Vector) / 4];
    } value{.vector = vector};
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Vector)) / kAlignment; ++i) {
      if constexpr (kAlignment == 1) reinterpret_cast<std::uint8_t*>(to)[i] = value.bytes[i];
      if constexpr (kAlignment == 2) reinterpret_cast<std::uint16_t*>(to)[i] = value.halves[i];
      if constexpr (kAlignment == 4) reinterpret_cast<std::uint32_t*>(to)[i] = value.words[i];
    }
  }
}

// Packs two elements; the first has the lower address.
__device__ inline std::uint32_t two_bf16(std::uint32_t first, std::uint32_t second) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
  return both;
}
__device__ inline std::uint32_t two_f16(std::uint32_t first, std::uint32_t second) {
  std::uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
  return both;
}
__device__ inline std::uint32_t no_payload(std::uint32_t f32) {
  return (f32 & 0x7fffffffU) > 0x7f800000U ? 0x7fffffffU : f32;
}
__device__ inline std::uint32_t f32_of_f16(std::uint32_t f16) {
  float f32;
  asm("{ .reg .b16 half; cvt.u16.u32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(f32) : "r"(f16));
  return no_payload(__float_as_uint(f32));
}

template <DType kFrom, DType kTo>
__device__ inline uint2 four_narrow(const uint4& wide) {
  static_assert(kFrom == DType::kF32);
  if constexpr (kTo == DType::kBF16) return {two_bf16(wide.x, wide.y), two_bf16(wide.z, wide.w)};
  return {two_f16(wide.x, wide.y), two_f16(wide.z, wide.w)};
}
template <DType kFrom, DType kTo>
__device__ inline uint4 four_wide(const uint2& narrow) {
  static_assert(kTo == DType::kF32);
  if constexpr (kFrom == DType::kBF16) {
    return {no_payload(narrow.x << 16), no_payload(narrow.x & 0xffff0000U), no_payload(narrow.y << 16),
            no_payload(narrow.y & 0xffff0000U)};
  }
  return {f32_of_f16(narrow.x & 0xffffU), f32_of_f16(narrow.x >> 16), f32_of_f16(narrow.y & 0xffffU),
          f32_of_f16(narrow.y >> 16)};
}

// For each path of whole runs: how a thread's 16 bytes of slot per step map to bytes of the tensor.
template <TilePath kPath>
struct Path;

template <>
struct Path<TilePath::kCopy> {
  static constexpr Words kWords = Words::kAdjacent;
  static constexpr std::uint32_t kTensorBytes = 1, kSlotBytes = 1;  // the ratio of offsets on the two sides
  static constexpr int kAtOnce = 8;  // steps whose loads are in flight together; the best value tried
};
// For tensors whose elements are twice as large as the slot's: a word of slot is 16 bytes of tensor.
template <DType kTensor, DType kSlot>
struct WidePath {
  static constexpr Words kWords = Words::kApart;
  static constexpr std::uint32_t kTensorBytes = 2, kSlotBytes = 1;
  static constexpr int kAtOnce = 2;
  static __device__ uint2 to_slot(const uint4& tensor) { return four_narrow<kTensor, kSlot>(tensor); }
  static __device__ uint4 to_tensor(const uint2& slot) { return four_wide<kSlot, kTensor>(slot); }
};
// For tensors whose elements are half as large as the slot's: 16 bytes of slot are 8 of tensor.
template <DType kTensor, DType kSlot>
struct NarrowPath {
  static constexpr Words kWords = Words::kAdjacent;
  static constexpr std::uint32_t kTensorBytes = 1, kSlotBytes = 2;
  static constexpr int kAtOnce = 8;
  static __device__ uint4 to_slot(const uint2& tensor) { return four_wide<kTensor, kSlot>(tensor); }
  static __device__ uint2 to_tensor(const uint4& slot) { return four_narrow<kSlot, kTensor>(slot); }
};
template <>
struct Path<TilePath::kF32BF16> : WidePath<DType::kF32, DType::kBF16> {};
template <>
struct Path<TilePath::kF32F16> : WidePath<DType::kF32, DType::kF16> {};
template <>
struct Path<TilePath::kBF16F32> : NarrowPath<DType::kBF16, DType::kF32> {};
template <>
struct Path<TilePath::kF16F32> : NarrowPath<DType::kF16, DType::kF32> {};

// Where a tile's runs lie in the tensors.
struct Runs {
  std::byte *first, *second;
  std::uint32_t split;

  __device__ Runs(const Tile& tile, std::byte* const* addresses)
      : first(addresses[tile.tensor[0]] + tile.offset[0]),
        second(addresses[tile.tensor[1]] + tile.offset[1]),
        split(tile.split) {}
  // Returns the tensor's address for byte `at` of the tile.
  template <TilePath kPath>
  __device__ std::byte* at(std::uint32_t at) const {
    using P = Path<kPath>;
    return at < split ? first + at / P::kSlotBytes * P::kTensorBytes
                      : second + (at - split) / P::kSlotBytes * P::kTensorBytes;
  }
  // Returns 16, 4, 2 or 1: the alignment of every address that at() returns for a thread's bytes.
  __device__ int alignment() const {
    std::uintptr_t both = reinterpret_cast<std::uintptr_t>(first);
    if (split < kTileBytes) both |= reinterpret_cast<std::uintptr_t>(second);
    return both % 16 == 0 ? 16 : both % 4 == 0 ? 4 : both % 2 == 0 ? 2 : 1;
  }
};

// Calls body.template operator()<kPath, kAlignment>().
template <TilePath kPath, typename Body>
__device__ inline void by_alignment(int alignment, const Body& body) {
  switch (alignment) {
    case 16: return body.template operator()<kPath, 16>();
    case 4: return body.template operator()<kPath, 4>();
    case 2: return body.template operator()<kPath, 2>();
    default: return body.template operator()<kPath, 1>();
  }
}
template <typename Body>
__device__ inline void by_path(TilePath path, int alignment, const Body& body) {
  switch (path) {
    case TilePath::kCopy: return by_alignment<TilePath::kCopy>(alignment, body);
    case TilePath::kF32BF16: return by_alignment<TilePath::kF32BF16>(alignment, body);
    case TilePath::kF32F16: return by_alignment<TilePath::kF32F16>(alignment, body);
    case TilePath::kBF16F32: return by_alignment<TilePath::kBF16F32>(alignment, body);
    case TilePath::kF16F32: return by_alignment<TilePath::kF16F32>(alignment, body);
    case TilePath::kPieces:
    case TilePath::kProduct:
    case TilePath::kPages:
    case TilePath::kTransposed: return;  // are not one or two runs
  }
}

}  // namespace bascule::inline v0::kernels::cuda
