#include <bascule/kernels/scatter.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <bascule/kernels/strided_copy.h>

namespace bascule::inline v0::kernels {
namespace {

// Elements in a line, `stride` bytes apart.
template <typename Byte>
struct Line {
  Byte* begin;
  std::int64_t stride;

  Line from(std::size_t element) const { return {begin + static_cast<std::int64_t>(element) * stride, stride}; }
};

class LineCopier {
 public:
  LineCopier(const Segment& segment, const Processor& processor)
      : source_bytes_(size_of(segment.slot_dtype)),
        target_bytes_(size_of(segment.tensor_dtype)),
        cast_(processor.run_cast(segment.slot_dtype, segment.tensor_dtype)) {}

  void copy(Line<const std::byte> source, Line<std::byte> target, std::size_t elements) const {
    const bool source_is_run = source.stride == static_cast<std::int64_t>(source_bytes_);
    const bool target_is_run = target.stride == static_cast<std::int64_t>(target_bytes_);
    if (source_is_run && target_is_run) return copy_run(source.begin, target.begin, elements);
    constexpr std::size_t kMost = 256;
    alignas(64) std::array<std::byte, kMost * kMaxElementBytes> lined_up, cast;
    for (std::size_t done = 0; done < elements; done += kMost) {
      const std::size_t some = std::min(kMost, elements - done);
      const Line<const std::byte> from = source.from(done);
      const Line<std::byte> to = target.from(done);
      const std::byte* run = from.begin;
      if (!source_is_run) {
        line_up({.source = from.begin, .row_stride = 0, .column_stride = from.stride, .rows = 1, .columns = some},
                lined_up.data(), some, source_bytes_);
        run = lined_up.data();
      }
      if (target_is_run) {
        copy_run(run, to.begin, some);
      } else {
        if (cast_ != nullptr) {
          cast_(run, cast.data(), some);
          run = cast.data();
        }
        spread(run, some, to.begin, to.stride, target_bytes_);
      }
    }
  }

 private:
  static constexpr std::size_t kMaxElementBytes = 8;

  void copy_run(const std::byte* source, std::byte* target, std::size_t elements) const {
    if (cast_ != nullptr) {
      cast_(source, target, elements);
    } else {
      std::memcpy(target, source, elements * source_bytes_);
    }
  }

  std::size_t source_bytes_;  // of one element
  std::size_t target_bytes_;
  RunCast cast_;
};

// Advances to the next line of the innermost dimension.
void step(const Segment& segment, std::array<std::int64_t, kMaxRank>& index) {
  for (std::uint32_t d = segment.rank - 1; d > 0; --d) {
    index[d] = 0;
    if (++index[d - 1] < segment.shape[d - 1]) return;
  }
}

}  // namespace

std::uint64_t slot_reach_of(const Segment& segment) {
  if (segment.elements == 0) return 0;
  std::int64_t last = 0;
  for (std::uint32_t d = 0; d < segment.rank; ++d) last += (segment.shape[d] - 1) * segment.slot_strides[d];
  return segment.slot_offset + (static_cast<std::uint64_t>(last) + 1) * size_of(segment.slot_dtype);
}

std::uint64_t elements_before(const Segment& segment, std::uint64_t slot_byte) {
  if (segment.elements == 0 || slot_byte <= segment.slot_offset) return 0;
  // Counts elements that lie before `limit`, in elements from the segment's beginning. Each dimension adds the whole
  // entries that end before the limit, and then descends into the entry that contains it.
  const std::uint64_t bytes = size_of(segment.slot_dtype);
  std::uint64_t limit = (slot_byte - segment.slot_offset + bytes - 1) / bytes;
  std::uint64_t count = 0, entry = segment.elements;
  for (std::uint32_t d = 0; d < segment.rank; ++d) {
    const auto extent = static_cast<std::uint64_t>(segment.shape[d]);
    entry /= extent;
    if (extent == 1) continue;  // its stride has no meaning
    const auto stride = static_cast<std::uint64_t>(segment.slot_strides[d]);
    const std::uint64_t at = (limit - 1) / stride;
    if (at >= extent) return count + extent * entry;
    count += at * entry;
    limit -= at * stride;
  }
  return count + 1;
}

void scatter(const Segment& segment, std::uint64_t first, std::uint64_t last, const std::byte* bytes,
             std::uint64_t bytes_begin, std::byte* tensor, const Processor& processor) {
  const LineCopier copier(segment, processor);
  const auto source_bytes = static_cast<std::int64_t>(size_of(segment.slot_dtype));
  const auto target_bytes = static_cast<std::int64_t>(size_of(segment.tensor_dtype));
  // The distance from `bytes` to the segment's first element, which may lie before them.
  const std::int64_t begin = static_cast<std::int64_t>(segment.slot_offset) - static_cast<std::int64_t>(bytes_begin);
  std::byte* const target = tensor + segment.tensor_offset;
  if (segment.is_run()) {
    const auto at = static_cast<std::int64_t>(first);
    return copier.copy({bytes + (begin + at * source_bytes), source_bytes}, {target + at * target_bytes, target_bytes},
                       last - first);
  }
  const std::uint32_t inner = segment.rank - 1;
  std::array<std::int64_t, kMaxRank> index = index_of(segment, first);
  while (first < last) {
    std::int64_t from = begin, to = 0;
    for (std::uint32_t d = 0; d < segment.rank; ++d) {
      from += index[d] * segment.slot_strides[d] * source_bytes;
      to += index[d] * segment.tensor_strides[d] * target_bytes;
    }
    const std::uint64_t some = std::min(last - first, static_cast<std::uint64_t>(segment.shape[inner] - index[inner]));
    copier.copy({bytes + from, segment.slot_strides[inner] * source_bytes},
                {target + to, segment.tensor_strides[inner] * target_bytes}, some);
    first += some;
    step(segment, index);
  }
}

}  // namespace bascule::inline v0::kernels
