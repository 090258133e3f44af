// The order in which a layout places tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <bascule/kernels/dtype.h>

namespace bascule::inline v0 {

// Higher ranks come first: tensors that fill whole cache lines, then the rest by falling element size, so that every
// tensor is aligned to its element without gaps.
inline std::size_t placing_rank(std::uint64_t bytes, DType dtype) {
  constexpr std::uint64_t kLineBytes = 64;
  return bytes % kLineBytes == 0 ? std::numeric_limits<std::size_t>::max() : size_of(dtype);
}

}  // namespace bascule::inline v0
