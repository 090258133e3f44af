// Keys and values of one layer in a paged cache, as kernels read and write them.
//
// Shapes: G key/value heads, D head width, P tokens of a block (kPageTokens). keys and values [blocks, G, P, D]: one
// head's part of one block is contiguous. A place is block · P + token of the block.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/dtype.h>

namespace bascule::ref::ops {

inline constexpr int kPageTokens = 16;  // the block pool's kBlockTokens
inline constexpr int kMostWidth = 128;
inline constexpr int kMostShared = 8;  // query heads of a key head

struct PagedCache {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kF32;  // or BF16
  int heads = 1;              // G
  int width = 64;             // D: a multiple of 8, at most kMostWidth
};

// The offset of element 0 of head `head` at `place`.
constexpr std::size_t offset_in(const PagedCache& cache, std::int64_t place, int head) {
  const std::int64_t page = place / kPageTokens, token = place % kPageTokens;
  return static_cast<std::size_t>(((page * cache.heads + head) * kPageTokens + token) * cache.width);
}

}  // namespace bascule::ref::ops
