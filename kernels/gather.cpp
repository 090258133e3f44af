#include "kernels/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace bascule::kernels {
namespace {

constexpr std::size_t kMaxElementBytes = 8;

template <std::size_t kBytes>
void copy_strided(const std::byte* source, std::int64_t stride_bytes, std::byte* target,
                  std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    std::memcpy(target + i * kBytes, source, kBytes);
    if (i + 1 < elements) source += stride_bytes;  // never points past the tensor
  }
}

void copy_strided(const std::byte* source, std::int64_t stride_bytes, std::byte* target, std::size_t elements,
                  std::size_t element_bytes) {
  switch (element_bytes) {
    case 1: return copy_strided<1>(source, stride_bytes, target, elements);
    case 2: return copy_strided<2>(source, stride_bytes, target, elements);
    case 4: return copy_strided<4>(source, stride_bytes, target, elements);
    default: return copy_strided<8>(source, stride_bytes, target, elements);
  }
}

// Writes whole elements of one segment, a row of its innermost dimension at a time.
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
    if (segment_.is_run()) return write_row(source_ + first * source_bytes_, 1, last - first, target);
    const std::uint32_t inner = segment_.rank - 1;
    std::array<std::int64_t, kMaxRank> index = index_of(first);
    while (first < last) {
      std::int64_t offset = 0;
      for (std::uint32_t d = 0; d < segment_.rank; ++d) offset += index[d] * segment_.tensor_strides[d];
      const auto count =
          std::min(last - first, static_cast<std::uint64_t>(segment_.shape[inner] - index[inner]));
      write_row(source_ + offset * static_cast<std::int64_t>(source_bytes_), segment_.tensor_strides[inner],
                count, target);
      first += count;
      target += count * target_bytes_;
      index[inner] = 0;
      for (std::uint32_t d = inner; d-- > 0;) {
        if (++index[d] < segment_.shape[d]) break;
        index[d] = 0;
      }
    }
  }

 private:
  std::array<std::int64_t, kMaxRank> index_of(std::uint64_t element) const {
    std::array<std::int64_t, kMaxRank> index{};
    for (std::uint32_t d = segment_.rank; d-- > 0;) {
      const auto extent = static_cast<std::uint64_t>(segment_.shape[d]);
      index[d] = static_cast<std::int64_t>(element % extent);
      element /= extent;
    }
    return index;
  }

  void write_row(const std::byte* source, std::int64_t stride, std::size_t elements,
                 std::byte* target) const {
    const std::int64_t stride_bytes = stride * static_cast<std::int64_t>(source_bytes_);
    if (cast_ == nullptr) {
      if (stride == 1) {
        std::memcpy(target, source, elements * source_bytes_);
      } else {
        copy_strided(source, stride_bytes, target, elements, source_bytes_);
      }
    } else if (stride == 1) {
      cast_(source, target, elements);
    } else {
      cast_strided(source, stride_bytes, elements, target);
    }
  }

  // Elements are lined up first, so that the cast sees a run.
  void cast_strided(const std::byte* source, std::int64_t stride_bytes, std::size_t elements,
                    std::byte* target) const {
    constexpr std::size_t kLineUp = 256;  // elements
    std::array<std::byte, kLineUp * kMaxElementBytes> lined_up;
    while (elements > 0) {
      const std::size_t count = std::min(elements, kLineUp);
      copy_strided(source, stride_bytes, lined_up.data(), count, source_bytes_);
      cast_(lined_up.data(), target, count);
      elements -= count;
      if (elements > 0) source += stride_bytes * static_cast<std::int64_t>(count);
      target += count * target_bytes_;
    }
  }

  const Segment& segment_;
  const std::byte* source_;
  std::size_t source_bytes_;  // of one element
  std::size_t target_bytes_;
  RunCast cast_;
};

}  // namespace

void gather(const Segment& segment, const std::byte* tensor, std::uint64_t begin, std::uint64_t end,
            std::byte* target, const Processor& processor) {
  const ElementWriter writer(segment, tensor, processor);
  const std::uint64_t element_bytes = size_of(segment.slot_dtype);
  // A piece of the element at `begin` or `end`, where a boundary cuts one.
  const auto write_part = [&](std::uint64_t from, std::uint64_t to) {
    std::array<std::byte, kMaxElementBytes> whole;
    const std::uint64_t element = from / element_bytes;
    writer.write(element, element + 1, whole.data());
    std::memcpy(target, whole.data() + from % element_bytes, to - from);
    target += to - from;
  };
  if (begin % element_bytes != 0) {
    const std::uint64_t cut = std::min(end, begin - begin % element_bytes + element_bytes);
    write_part(begin, cut);
    begin = cut;
  }
  const std::uint64_t whole_end = std::max(begin, end - end % element_bytes);
  if (begin < whole_end) {
    writer.write(begin / element_bytes, whole_end / element_bytes, target);
    target += whole_end - begin;
  }
  if (whole_end < end) write_part(whole_end, end);
}

}  // namespace bascule::kernels
