#include <algorithm>
#include <array>
#include <cstring>

#include <bascule/kernels/default_rounding.h>
#include <bascule/kernels/element_writer.h>
#include <bascule/kernels/gather.h>
#include <bascule/kernels/multiply_add.h>

namespace bascule::inline v0::kernels {
namespace {

// What is merged at a time: rows of w so long that they are read like runs, with a panel that stays in the second
// cache.
constexpr std::size_t kMostRows = 12;
constexpr std::size_t kPanelElements = 16384;  // 64 KiB
static_assert(kPanelElements >= kMaxProductRank * kPanelColumns);

Segment widened_to_f32(Segment segment) {
  segment.slot_dtype = DType::kF32;
  return segment;
}

// A matrix as a segment, to be read as F32.
Segment matrix(const Factor& factor, std::uint64_t rows, std::uint64_t columns) {
  const auto width = static_cast<std::int64_t>(columns);
  Segment made = {.tensor = factor.tensor,
                  .tensor_dtype = factor.dtype,
                  .slot_dtype = DType::kF32,
                  .rank = 2,
                  .elements = rows * columns,
                  .shape = {static_cast<std::int64_t>(rows), width},
                  .tensor_strides = {factor.row_stride, factor.column_stride},
                  .slot_strides = {width, 1}};
  if (factor.row_stride != width || factor.column_stride != 1) return made;
  made.rank = 1;  // a run, which needs no indices
  made.shape = {static_cast<std::int64_t>(made.elements)};
  made.tensor_strides = made.slot_strides = {1};
  return made;
}

// Where the bytes of a segment go, in any order: byte `first` goes to `target`. With `sums`, this is the beginning of a
// slot's tile, and the sums belong to this tile and the next ones.
struct Output {
  std::byte* target;
  std::uint64_t first;
  TileSums* sums = nullptr;

  std::byte* at(std::uint64_t byte) const { return target + (byte - first); }
};

class ArithmeticWriter {
 public:
  ArithmeticWriter(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
                   const Processor& processor)
      : segment_(segment),
        arithmetic_(arithmetic),
        processor_(processor),
        widened_(widened_to_f32(segment)),
        w_(widened_, tensors[segment.tensor], processor),
        run_(tensors[segment.tensor] + segment.tensor_offset),
        reads_in_place_(segment.is_run() &&
                        (segment.tensor_dtype == DType::kF32 || segment.tensor_dtype == segment.slot_dtype)),
        slot_bytes_(size_of(segment.slot_dtype)) {
    if (arithmetic.rank == 0) return;
    left_matrix_ = matrix(arithmetic.left, segment.elements / arithmetic.columns, arithmetic.rank);
    right_matrix_ = matrix(arithmetic.right, arithmetic.rank, arithmetic.columns);
    left_ = tensors[arithmetic.left.tensor];
    right_ = tensors[arithmetic.right.tensor];
  }

  // Elements [first, last) in C order.
  void write(std::uint64_t first, std::uint64_t last, const Output& output) const {
    if (arithmetic_.rank == 0) return write_scaled(first, last, output);
    const std::uint64_t columns = arithmetic_.columns;
    // The first row begins at column `begin`, and the last one ends at column `end`: between these, every column has
    // the same rows.
    const std::uint64_t row = first / columns, begin = first % columns;
    const std::uint64_t last_row = (last - 1) / columns, end = (last - 1) % columns + 1;
    const std::array<std::uint64_t, 4> cuts = {0, std::min(begin, end), std::max(begin, end), columns};
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      write_rectangle(row + (cuts[i] < begin ? 1 : 0), last_row + (cuts[i] < end ? 1 : 0), cuts[i], cuts[i + 1],
                      output);
  }

 private:
  void write_scaled(std::uint64_t first, std::uint64_t last, const Output& output) const {
    const RunCast round = processor_.run_cast(DType::kF32, segment_.slot_dtype);  // null: the slot is F32
    std::array<float, 1024> some;
    auto* const bytes = reinterpret_cast<std::byte*>(some.data());
    for (std::uint64_t count = 0; first < last; first += count) {
      count = std::min<std::uint64_t>(some.size(), last - first);
      w_.write(first, first + count, bytes);
      for (std::uint64_t i = 0; i < count; ++i) some[i] *= arithmetic_.scale;
      std::array<std::byte, sizeof(some)> rounded;
      if (round != nullptr) {
        round(bytes, rounded.data(), count);
      } else {
        plain_round(some.data(), count, DType::kF32, rounded.data());
      }
      std::memcpy(output.at(first * slot_bytes_), rounded.data(), count * slot_bytes_);
    }
  }

  // Columns [begin, end) of rows [row, last_row).
  void write_rectangle(std::uint64_t row, std::uint64_t last_row, std::uint64_t begin, std::uint64_t end,
                       const Output& output) const {
    if (row >= last_row) return;
    const std::size_t most =
        std::clamp(kPanelElements / arithmetic_.rank / kPanelColumns * kPanelColumns, kPanelColumns, kMostColumns);
    alignas(64) std::array<float, kPanelElements> panel;
    for (std::uint64_t column = begin; column < end; column += most) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most, end - column));
      make_panel(column, wanted, panel.data());
      write_columns(panel.data(), row, last_row, column, wanted, output);
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
                     std::size_t wanted, const Output& output) const {
    constexpr std::size_t kRowElements = kMostColumns + 32;  // not 4 KiB, at which addresses look alike to a processor
    const std::size_t rank = arithmetic_.rank, w_bytes = size_of(segment_.tensor_dtype);
    const ElementWriter rows_of_left(left_matrix_, left_, processor_);
    alignas(64) std::array<float, kMostRows * kRowElements> some;  // of w, if it is not read in place; then of the slot
    auto* const made = reinterpret_cast<std::byte*>(some.data());
    std::array<float, kMostRows * kMaxProductRank> left;
    ProductRows product = {.columns = (wanted + kPanelColumns - 1) / kPanelColumns * kPanelColumns,
                           .rank = rank,
                           .scale = arithmetic_.scale,
                           .left = left.data(),
                           .panel = panel,
                           .slot_dtype = segment_.slot_dtype,
                           .w = made,
                           .target = made,
                           .w_stride = kRowElements * sizeof(float),
                           .target_stride = kRowElements * sizeof(float),
                           .sums = output.sums};
    const bool in_place = reads_in_place_ && product.columns == wanted;
    if (in_place) {
      product.w_dtype = segment_.tensor_dtype;
      product.w_stride = arithmetic_.columns * w_bytes;
    }
    for (; row < last_row; row += product.rows) {
      product.rows = std::min<std::uint64_t>(kMostRows, last_row - row);
      rows_of_left.write(row * rank, (row + product.rows) * rank, reinterpret_cast<std::byte*>(left.data()));
      const std::uint64_t element = row * arithmetic_.columns + column;
      if (in_place) product.w = run_ + element * w_bytes;
      for (std::size_t r = 0; r < product.rows && !in_place; ++r) {
        const std::uint64_t from = element + r * arithmetic_.columns;
        w_.write(from, from + wanted, made + r * product.w_stride);
      }
      const std::uint64_t byte = element * slot_bytes_, row_bytes = arithmetic_.columns * slot_bytes_;
      if (output.sums != nullptr) {
        product.target = output.at(byte);
        product.target_stride = row_bytes;
        product.target_offset = byte - output.first;
      }
      processor_.multiply_add(product);
      for (std::size_t r = 0; r < product.rows && output.sums == nullptr; ++r)
        std::memcpy(output.at(byte + r * row_bytes), made + r * product.target_stride, wanted * slot_bytes_);
    }
  }

  const Segment& segment_;
  const Arithmetic& arithmetic_;
  const Processor& processor_;
  const Segment widened_;
  const ElementWriter w_;
  const std::byte* const run_;
  const bool reads_in_place_;  // w, by multiply_add()
  const std::size_t slot_bytes_;
  Segment left_matrix_, right_matrix_;
  const std::byte *left_ = nullptr, *right_ = nullptr;
};

}  // namespace

void gather(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
            std::uint64_t begin, std::uint64_t end, std::byte* target, const Processor& processor) {
  const DefaultRounding rounding;
  const ArithmeticWriter writer(segment, arithmetic, tensors, processor);
  const std::size_t bytes = size_of(segment.slot_dtype);
  write_bytes(bytes, begin, end, target, [&](std::uint64_t first, std::uint64_t last, std::byte* to) {
    writer.write(first, last, Output{to, first * bytes});
  });
}

void stream_product(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
                    std::uint64_t begin, std::uint64_t end, std::byte* slot, TileSums* sums,
                    const Processor& processor) {
  const DefaultRounding rounding;
  const std::size_t bytes = size_of(segment.slot_dtype);
  const std::uint64_t first = begin - segment.slot_offset, last = end - segment.slot_offset;
  ArithmeticWriter(segment, arithmetic, tensors, processor)
      .write(first / bytes, last / bytes, Output{slot + begin, first, sums});
}

}  // namespace bascule::inline v0::kernels
