#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>

#include <bascule/kernels/element_writer.h>
#include <bascule/kernels/gather.h>
#include <bascule/kernels/multiply_add.h>

namespace bascule::inline v0::kernels {
namespace {

constexpr std::size_t kMostColumns = 512;                                // of w, at a time
constexpr std::size_t kPanelElements = kMaxProductRank * kPanelColumns;  // of `right`, at a time: 32 KiB

// The calling thread may round in another direction, or flush denormals (torch.set_flush_denormal).
class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_{};
};

Segment widened_to_f32(Segment segment) {
  segment.slot_dtype = DType::kF32;
  return segment;
}

// A matrix as a segment, to be read as F32.
Segment matrix(const Factor& factor, std::uint64_t rows, std::uint64_t columns) {
  return {.tensor = factor.tensor,
          .tensor_dtype = factor.dtype,
          .slot_dtype = DType::kF32,
          .rank = 2,
          .elements = rows * columns,
          .shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)},
          .tensor_strides = {factor.row_stride, factor.column_stride},
          .slot_strides = {static_cast<std::int64_t>(columns), 1}};
}

class ArithmeticWriter {
 public:
  ArithmeticWriter(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
                   const Processor& processor)
      : segment_(segment),
        arithmetic_(arithmetic),
        processor_(processor),
        widened_(widened_to_f32(segment)),
        w_(widened_, tensors[segment.tensor], processor),
        round_(processor.run_cast(DType::kF32, segment.slot_dtype)),
        slot_bytes_(size_of(segment.slot_dtype)) {
    if (arithmetic.rank == 0) return;
    left_matrix_ = matrix(arithmetic.left, segment.elements / arithmetic.columns, arithmetic.rank);
    right_matrix_ = matrix(arithmetic.right, arithmetic.rank, arithmetic.columns);
    left_ = tensors[arithmetic.left.tensor];
    right_ = tensors[arithmetic.right.tensor];
  }

  // Elements [first, last) in C order.
  void write(std::uint64_t first, std::uint64_t last, std::byte* target) const {
    if (arithmetic_.rank == 0) return write_scaled(first, last, target);
    const std::uint64_t columns = arithmetic_.columns;
    // Columns [begin, end) of every row that has them: the columns before, within and after the range's first and last
    // rows are three rectangles at most.
    const std::uint64_t first_row = first / columns, last_row = (last - 1) / columns;
    if (first_row == last_row)
      return write_rectangle(first_row, last_row + 1, first % columns, last - first_row * columns, first, target);
    std::uint64_t whole = first_row, whole_end = last_row + 1;
    if (first % columns != 0) write_rectangle(first_row, ++whole, first % columns, columns, first, target);
    if (last % columns != 0) write_rectangle(--whole_end, last_row + 1, 0, last % columns, first, target);
    if (whole < whole_end) write_rectangle(whole, whole_end, 0, columns, first, target);
  }

 private:
  void write_scaled(std::uint64_t first, std::uint64_t last, std::byte* target) const {
    std::array<float, 1024> some;
    for (std::uint64_t count = 0; first < last; first += count, target += count * slot_bytes_) {
      count = std::min<std::uint64_t>(some.size(), last - first);
      w_.write(first, first + count, reinterpret_cast<std::byte*>(some.data()));
      for (std::uint64_t i = 0; i < count; ++i) some[i] *= arithmetic_.scale;
      round(some.data(), count, target);
    }
  }

  // Columns [begin, end) of rows [row, last_row); `target` is where element `origin` goes.
  void write_rectangle(std::uint64_t row, std::uint64_t last_row, std::uint64_t begin, std::uint64_t end,
                       std::uint64_t origin, std::byte* target) const {
    const std::size_t rank = arithmetic_.rank;
    const std::size_t most = std::min(kMostColumns, kPanelElements / rank / kPanelColumns * kPanelColumns);
    alignas(64) std::array<float, kPanelElements> panel;
    for (std::uint64_t column = begin; column < end; column += most) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most, end - column));
      make_panel(column, wanted, panel.data());
      write_columns(panel.data(), row, last_row, column, wanted, origin, target);
    }
  }

  // A run is read where it lies, in whole blocks; other columns are lined up first, a block at a time.
  void make_panel(std::uint64_t column, std::size_t wanted, float* panel) const {
    const Factor& right = arithmetic_.right;
    const std::size_t rank = arithmetic_.rank, bytes = size_of(right.dtype);
    std::size_t at = 0;
    if (right.column_stride == 1) {
      at = wanted / kPanelColumns * kPanelColumns;
      processor_.make_panel(right.dtype)(right_ + column * bytes, static_cast<std::size_t>(right.row_stride) * bytes,
                                         rank, at, panel);
    }
    const ElementWriter rows(right_matrix_, right_, processor_);
    for (; at < wanted; at += kPanelColumns) {
      const std::size_t some = std::min(kPanelColumns, wanted - at);
      for (std::size_t k = 0; k < rank; ++k) {
        float* const to = panel + at * rank + k * kPanelColumns;
        const std::uint64_t from = k * arithmetic_.columns + column + at;
        rows.write(from, from + some, reinterpret_cast<std::byte*>(to));
        std::fill_n(to + some, kPanelColumns - some, 0.0F);
      }
    }
  }

  // `wanted` columns, starting with `column`, of each row.
  void write_columns(const float* panel, std::uint64_t row, std::uint64_t last_row, std::uint64_t column,
                     std::size_t wanted, std::uint64_t origin, std::byte* target) const {
    const std::size_t rank = arithmetic_.rank;
    const std::size_t padded = (wanted + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    const ElementWriter rows_of_left(left_matrix_, left_, processor_);
    alignas(64) std::array<float, kProductRows * kMostColumns> w;
    std::array<float, kProductRows * kMaxProductRank> left;
    for (; row < last_row; row += kProductRows) {
      const auto rows = static_cast<std::size_t>(std::min<std::uint64_t>(kProductRows, last_row - row));
      rows_of_left.write(row * rank, (row + rows) * rank, reinterpret_cast<std::byte*>(left.data()));
      for (std::size_t r = 0; r < rows; ++r) {
        const std::uint64_t element = (row + r) * arithmetic_.columns + column;
        w_.write(element, element + wanted, reinterpret_cast<std::byte*>(&w[r * padded]));
      }
      processor_.multiply_add(rows, left.data(), panel, rank, padded, arithmetic_.scale, w.data());
      for (std::size_t r = 0; r < rows; ++r)
        round(&w[r * padded], wanted, target + ((row + r) * arithmetic_.columns + column - origin) * slot_bytes_);
    }
  }

  // Rounds to the slot's type; a cast of F32 to itself would keep a NaN's sign and payload.
  void round(const float* values, std::size_t count, std::byte* target) const {
    if (round_ != nullptr) return round_(reinterpret_cast<const std::byte*>(values), target, count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = std::isnan(values[i]) ? 0x7fffffffU : std::bit_cast<std::uint32_t>(values[i]);
      std::memcpy(target + i * sizeof(bits), &bits, sizeof(bits));
    }
  }

  const Segment& segment_;
  const Arithmetic& arithmetic_;
  const Processor& processor_;
  const Segment widened_;
  const ElementWriter w_;
  const RunCast round_;  // null: the slot is F32
  const std::size_t slot_bytes_;
  Segment left_matrix_, right_matrix_;
  const std::byte *left_ = nullptr, *right_ = nullptr;
};

}  // namespace

void gather(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
            std::uint64_t begin, std::uint64_t end, std::byte* target, const Processor& processor) {
  const DefaultRounding rounding;
  const ArithmeticWriter writer(segment, arithmetic, tensors, processor);
  write_bytes(size_of(segment.slot_dtype), begin, end, target,
              [&](std::uint64_t first, std::uint64_t last, std::byte* to) { writer.write(first, last, to); });
}

}  // namespace bascule::inline v0::kernels
