// Segment: says which elements of one tensor lie where in the slot. Pack and unpack work through lists of segments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <bascule/kernels/arithmetic.h>
#include <bascule/kernels/dtype.h>

namespace bascule::inline v0::kernels {

inline constexpr std::size_t kMaxRank = 6;  // dimensions left after merging neighbours that lie in one run

// `elements` elements of one tensor, and where they lie in the slot. It holds offsets and no addresses, so a table of
// segments is made once and works for any addresses. Elements are taken in C order over `shape`. The slot and the
// tensor have separate strides, in elements, which may be negative or zero. If `rank` is 1 and both strides are 1, the
// segment is one run of bytes on both sides; rank 0, a scalar, is also such a run.
struct Segment {
  std::uint32_t tensor = 0;  // index into the list of tensor addresses
  DType tensor_dtype = DType::kF32;
  DType slot_dtype = DType::kF32;
  std::uint32_t rank = 1;
  std::uint32_t arithmetic = kNoArithmetic;  // index into the list of arithmetic, or none: a copy or a cast
  std::uint64_t tensor_offset = 0;           // bytes from the tensor's address
  std::uint64_t slot_offset = 0;             // bytes from the slot's beginning
  std::uint64_t elements = 0;
  std::array<std::int64_t, kMaxRank> shape{};           // shape[0] is the outermost
  std::array<std::int64_t, kMaxRank> tensor_strides{};  // elements
  std::array<std::int64_t, kMaxRank> slot_strides{};    // elements

  friend bool operator==(const Segment&, const Segment&) = default;

  constexpr bool is_run() const { return rank == 0 || (rank == 1 && tensor_strides[0] == 1 && slot_strides[0] == 1); }
};

// The index in each dimension of element `element`, counted in C order.
inline std::array<std::int64_t, kMaxRank> index_of(const Segment& segment, std::uint64_t element) {
  std::array<std::int64_t, kMaxRank> index{};
  for (std::uint32_t d = segment.rank; d-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(segment.shape[d]);
    index[d] = static_cast<std::int64_t>(element % extent);
    element /= extent;
  }
  return index;
}

}  // namespace bascule::inline v0::kernels
