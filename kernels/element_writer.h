// ElementWriter: reads any elements of one segment, in C order, and writes them without gaps, with a cast on the way.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>
#include <bascule/kernels/strided_copy.h>

namespace bascule::inline v0::kernels {

inline constexpr std::size_t kMaxElementBytes = 8;

// Writes whole elements of one segment: rows of its innermost dimension, several at once if they lie side by side.
class ElementWriter {
 public:
  ElementWriter(const Segment& segment, const std::byte* tensor, const Processor& processor)
      : segment_(segment),
        source_(tensor + segment.tensor_offset),
        source_bytes_(size_of(segment.tensor_dtype)),
        target_bytes_(size_of(segment.slot_dtype)),
        cast_(processor.run_cast(segment.tensor_dtype, segment.slot_dtype)) {}

  // Elements [first, last) in C order.
  void write(std::uint64_t first, std::uint64_t last, std::byte* target) const {
    if (segment_.is_run()) return write_run(source_ + first * source_bytes_, last - first, target);
    const std::uint32_t inner = segment_.rank - 1;
    const auto columns = static_cast<std::uint64_t>(segment_.shape[inner]);
    std::array<std::int64_t, kMaxRank> index = index_of(segment_, first);
    while (first < last) {
      StridedBlock block = {.source = source_,
                            .row_stride = 0,
                            .column_stride = segment_.tensor_strides[inner] * static_cast<std::int64_t>(source_bytes_),
                            .rows = 1,
                            .columns = columns - static_cast<std::uint64_t>(index[inner])};
      for (std::uint32_t d = 0; d < segment_.rank; ++d)
        block.source += index[d] * segment_.tensor_strides[d] * static_cast<std::int64_t>(source_bytes_);
      if (rows_are_nearer() && index[inner] == 0 && last - first >= columns) {
        block.row_stride = segment_.tensor_strides[inner - 1] * static_cast<std::int64_t>(source_bytes_);
        block.rows = std::min((last - first) / columns,
                              static_cast<std::uint64_t>(segment_.shape[inner - 1] - index[inner - 1]));
      } else {
        block.columns = std::min(block.columns, last - first);
      }
      write_rows(block, target);
      const std::uint64_t written = block.rows * block.columns;
      first += written;
      target += written * target_bytes_;
      if (first < last) index = index_of(segment_, first);
    }
  }

  // Elements that lie side by side at `source`.
  void write_run(const std::byte* source, std::size_t elements, std::byte* target) const {
    if (cast_ != nullptr) {
      cast_(source, target, elements);
    } else {
      std::memcpy(target, source, elements * source_bytes_);
    }
  }

 private:
  // True for a transposed matrix.
  bool rows_are_nearer() const {
    const std::uint32_t inner = segment_.rank - 1;
    return inner > 0 && std::abs(segment_.tensor_strides[inner - 1]) < std::abs(segment_.tensor_strides[inner]);
  }

  // The rows follow each other without gaps in `target`.
  void write_rows(const StridedBlock& rows, std::byte* target) const {
    if (rows.rows == 1 && rows.column_stride == static_cast<std::int64_t>(source_bytes_))
      return write_run(rows.source, rows.columns, target);
    constexpr std::size_t kRows = 32;
    constexpr std::size_t kColumns = 64;
    alignas(64) std::array<std::byte, kRows * kColumns * kMaxElementBytes> lined_up;
    for (std::size_t row = 0; row < rows.rows; row += kRows) {
      for (std::size_t column = 0; column < rows.columns; column += kColumns) {
        StridedBlock block = rows;
        block.source +=
            static_cast<std::int64_t>(row) * rows.row_stride + static_cast<std::int64_t>(column) * rows.column_stride;
        block.rows = std::min(kRows, rows.rows - row);
        block.columns = std::min(kColumns, rows.columns - column);
        line_up(block, lined_up.data(), kColumns, source_bytes_);
        for (std::size_t r = 0; r < block.rows; ++r)
          write_run(lined_up.data() + r * kColumns * source_bytes_, block.columns,
                    target + ((row + r) * rows.columns + column) * target_bytes_);
      }
    }
  }

  const Segment& segment_;
  const std::byte* source_;
  std::size_t source_bytes_;  // of one element
  std::size_t target_bytes_;
  RunCast cast_;
};

// Writes bytes [begin, end) of a list of elements of `element_bytes` bytes each to `target`. write(first, last, target)
// writes whole elements; one that `begin` or `end` cuts is written elsewhere, and the wanted part copied.
template <typename Write>
void write_bytes(std::uint64_t element_bytes, std::uint64_t begin, std::uint64_t end, std::byte* target,
                 const Write& write) {
  const auto write_piece = [&](std::uint64_t from, std::uint64_t to) {
    std::array<std::byte, kMaxElementBytes> whole;
    const std::uint64_t element = from / element_bytes;
    write(element, element + 1, whole.data());
    std::memcpy(target, whole.data() + from % element_bytes, to - from);
    target += to - from;
  };
  if (begin % element_bytes != 0) {
    const std::uint64_t cut = std::min(end, begin - begin % element_bytes + element_bytes);
    write_piece(begin, cut);
    begin = cut;
  }
  const std::uint64_t whole_end = std::max(begin, end - end % element_bytes);
  if (begin < whole_end) {
    write(begin / element_bytes, whole_end / element_bytes, target);
    target += whole_end - begin;
  }
  if (whole_end < end) write_piece(whole_end, end);
}

}  // namespace bascule::inline v0::kernels
