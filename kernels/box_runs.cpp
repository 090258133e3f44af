#include <bascule/kernels/box_runs.h>

namespace bascule::inline v0::kernels {

std::uint64_t bytes_before(const Segment& box, std::uint64_t slot_byte) {
  if (box.elements == 0 || slot_byte <= box.slot_offset) return 0;
  // Each dimension adds the whole entries that begin before the byte, and then descends into the entry with the byte.
  const std::uint64_t element_bytes = size_of(box.slot_dtype);
  std::array<std::uint64_t, kMaxRank + 1> entry{};  // elements per index of each dimension; made without a division
  entry[box.rank] = 1;
  for (std::uint32_t d = box.rank; d-- > 0;) entry[d] = entry[d + 1] * static_cast<std::uint64_t>(box.shape[d]);
  std::uint64_t rest = slot_byte - box.slot_offset, count = 0;
  for (std::uint32_t d = 0; d < box.rank; ++d) {
    const auto extent = static_cast<std::uint64_t>(box.shape[d]);
    if (extent == 1) continue;  // its stride has no meaning
    const std::uint64_t stride = static_cast<std::uint64_t>(box.slot_strides[d]) * element_bytes;
    const std::uint64_t at = rest / stride;
    if (at >= extent) return (count + entry[d]) * element_bytes;
    count += at * entry[d + 1];
    rest -= at * stride;
  }
  return count * element_bytes + std::min(rest, element_bytes);
}

BoxRuns::BoxRuns(const Segment& box) : box_(box), outer_(box.rank) {
  for (; outer_ > 0; --outer_) {
    const std::uint32_t d = outer_ - 1;
    const auto dense = static_cast<std::int64_t>(elements_);
    if (box.shape[d] == 1) continue;
    if (box.slot_strides[d] != dense) break;
    in_tensor_ &= box.tensor_strides[d] == dense;
    elements_ *= static_cast<std::uint64_t>(box.shape[d]);
  }
}

bool BoxRuns::are_whole_lines() const {
  const std::uint64_t element_bytes = size_of(box_.slot_dtype);
  bool whole = box_.slot_offset % kLineBytes == 0 && elements_ * element_bytes % kLineBytes == 0;
  for (std::uint32_t d = 0; d < outer_; ++d)
    whole &= static_cast<std::uint64_t>(box_.slot_strides[d]) * element_bytes % kLineBytes == 0;
  return whole;
}

}  // namespace bascule::inline v0::kernels
