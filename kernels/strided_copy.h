// Gathers strided elements into runs for casts and copies, and spreads them again. Elements have 1, 2, 4 or 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bascule::inline v0::kernels {

// `rows` rows of `columns` columns: element (r, c) lies at source + r * row_stride + c * column_stride, in bytes, and
// goes to target[r * target_columns + c]. line_up()'s outer loop runs over columns, so if rows are closer together in
// memory than columns (a transpose), elements in the same cache line and page are read together.
struct StridedBlock {
  const std::byte* source;
  std::int64_t row_stride;
  std::int64_t column_stride;
  std::size_t rows;
  std::size_t columns;
};

template <std::size_t kBytes>
void line_up(const StridedBlock& block, std::byte* target, std::size_t target_columns) {
  for (std::size_t c = 0; c < block.columns; ++c) {
    for (std::size_t r = 0; r < block.rows; ++r) {
      const std::int64_t offset =
          static_cast<std::int64_t>(r) * block.row_stride + static_cast<std::int64_t>(c) * block.column_stride;
      std::memcpy(target + (r * target_columns + c) * kBytes, block.source + offset, kBytes);
    }
  }
}

inline void line_up(const StridedBlock& block, std::byte* target, std::size_t target_columns,
                    std::size_t element_bytes) {
  switch (element_bytes) {
    case 1: return line_up<1>(block, target, target_columns);
    case 2: return line_up<2>(block, target, target_columns);
    case 4: return line_up<4>(block, target, target_columns);
    default: return line_up<8>(block, target, target_columns);
  }
}

// The reverse of line_up() for one row: element c of the run at `source` goes to target + c * stride bytes.
template <std::size_t kBytes>
void spread(const std::byte* source, std::size_t elements, std::byte* target, std::int64_t stride) {
  for (std::size_t c = 0; c < elements; ++c)
    std::memcpy(target + static_cast<std::int64_t>(c) * stride, source + c * kBytes, kBytes);
}

inline void spread(const std::byte* source, std::size_t elements, std::byte* target, std::int64_t stride,
                   std::size_t element_bytes) {
  switch (element_bytes) {
    case 1: return spread<1>(source, elements, target, stride);
    case 2: return spread<2>(source, elements, target, stride);
    case 4: return spread<4>(source, elements, target, stride);
    default: return spread<8>(source, elements, target, stride);
  }
}

}  // namespace bascule::inline v0::kernels
