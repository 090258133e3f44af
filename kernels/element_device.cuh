// Loads, casts and stores single elements of segments, with any strides, types and alignment, for the pieces of tiles.
// The twin of gather.cpp and scatter.cpp, with one element per lane.
#pragma once

#include <cstdint>

#include <bascule/kernels/cast.h>
#include <bascule/kernels/path_device.cuh>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels::cuda {

// The sizes in kDTypes, for device code, which cannot read that table.
__device__ inline std::uint32_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kC64: return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16: return 2;
    default: return 1;
  }
}

// Loads an element of `bytes` bytes, at any address, into the low bits of the result.
__device__ inline std::uint64_t load_element(const std::byte* from, std::uint32_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(from) % bytes == 0) {
    switch (bytes) {
      case 8: return *reinterpret_cast<const std::uint64_t*>(from);
      case 4: return *reinterpret_cast<const std::uint32_t*>(from);
      case 2: return *reinterpret_cast<const std::uint16_t*>(from);
      default: return static_cast<std::uint64_t>(*from);
    }
  }
  std::uint64_t value = 0;
  for (std::uint32_t i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return value;
}

// Stores bytes [begin, end) of the element.
__device__ inline void store_bytes(std::byte* to, std::uint64_t value, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

__device__ inline void store_element(std::byte* to, std::uint64_t value, std::uint32_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0) return store_bytes(to, value, 0, bytes);
  switch (bytes) {
    case 8: *reinterpret_cast<std::uint64_t*>(to) = value; return;
    case 4: *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(value); return;
    case 2: *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(value); return;
    default: *to = static_cast<std::byte>(value); return;
  }
}

template <typename From>
__device__ inline std::uint64_t cast_from(std::uint64_t value, DType to) {
  const auto bits = static_cast<typename From::Bits>(value);
  switch (to) {
    case DType::kF64: return cast_bits<F64Format, From>(bits);
    case DType::kF32: return cast_bits<F32Format, From>(bits);
    case DType::kF16: return cast_bits<F16Format, From>(bits);
    default: return cast_bits<BF16Format, From>(bits);
  }
}

// The casts of can_cast(): common ones by the instructions of path_device.cuh, the others by the integer arithmetic of
// cast.h.
__device__ inline std::uint64_t cast_element(std::uint64_t value, DType from, DType to) {
  if (from == to) return value;
  const auto bits = static_cast<std::uint32_t>(value);
  if (from == DType::kF32 && to == DType::kBF16) return two_bf16(bits, 0) & 0xffffU;
  if (from == DType::kF32 && to == DType::kF16) return two_f16(bits, 0) & 0xffffU;
  if (from == DType::kBF16 && to == DType::kF32) return no_payload(bits << 16);
  if (from == DType::kF16 && to == DType::kF32) return f32_of_f16(bits);
  switch (from) {
    case DType::kF64: return cast_from<F64Format>(value, to);
    case DType::kF32: return cast_from<F32Format>(value, to);
    case DType::kF16: return cast_from<F16Format>(value, to);
    default: return cast_from<BF16Format>(value, to);
  }
}

// One warp copies `steps` steps of sizeof(Step) bytes. copy_run() picks the widest step that both addresses allow.
template <typename Step>
__device__ inline void copy_steps(const std::byte* from, std::byte* to, std::uint32_t steps) {
  const auto* const source = reinterpret_cast<const Step*>(from);
  auto* const target = reinterpret_cast<Step*>(to);
  constexpr std::uint32_t kAtOnce = 4;
  std::uint32_t at = threadIdx.x % 32;
  for (; at + (kAtOnce - 1) * 32 < steps; at += kAtOnce * 32) {
    Step some[kAtOnce];
#pragma unroll
    for (std::uint32_t u = 0; u < kAtOnce; ++u) some[u] = source[at + u * 32];
#pragma unroll
    for (std::uint32_t u = 0; u < kAtOnce; ++u) target[at + u * 32] = some[u];
  }
  for (; at < steps; at += 32) target[at] = source[at];
}

__device__ inline void copy_run(const std::byte* from, std::byte* to, std::uint32_t bytes) {
  const std::uintptr_t both = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  const std::uint32_t step = both % 16 == 0 ? 16 : both % 4 == 0 ? 4 : both % 2 == 0 ? 2 : 1;
  const std::uint32_t whole = bytes / step * step;
  switch (step) {
    case 16: copy_steps<uint4>(from, to, bytes / 16); break;
    case 4: copy_steps<std::uint32_t>(from, to, bytes / 4); break;
    case 2: copy_steps<std::uint16_t>(from, to, bytes / 2); break;
    default: copy_steps<std::uint8_t>(from, to, bytes);
  }
  if (const std::uint32_t at = whole + threadIdx.x % 32; at < bytes) to[at] = from[at];
}

// Where one element, counted in C order, lies in the tensor and in the slot, as offsets in elements.
struct ElementPlace {
  std::int64_t in_tensor = 0, in_slot = 0;
};

template <typename Index>  // 32 bits if they suffice: a 64-bit division takes several times as long
__device__ inline ElementPlace place_of(const Segment& segment, Index element) {
  ElementPlace place;
  for (std::uint32_t d = segment.rank; d-- > 1;) {
    const auto extent = static_cast<Index>(segment.shape[d]);
    const Index rest = element / extent;
    const auto at = static_cast<std::int64_t>(element - rest * extent);
    place.in_tensor += at * segment.tensor_strides[d];
    place.in_slot += at * segment.slot_strides[d];
    element = rest;
  }
  place.in_tensor += static_cast<std::int64_t>(element) * segment.tensor_strides[0];
  place.in_slot += static_cast<std::int64_t>(element) * segment.slot_strides[0];
  return place;
}

__device__ inline ElementPlace place_of(const Segment& segment, std::uint64_t element) {
  if (segment.is_run()) return {static_cast<std::int64_t>(element), static_cast<std::int64_t>(element)};
  if (segment.elements <= 0xffffffffU) return place_of<std::uint32_t>(segment, static_cast<std::uint32_t>(element));
  return place_of<std::uint64_t>(segment, element);
}

}  // namespace bascule::inline v0::kernels::cuda
