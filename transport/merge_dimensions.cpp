#include <bascule/transport/merge_dimensions.h>

#include <algorithm>

namespace bascule::inline v0 {

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

bool merge_dimensions(std::span<const std::int64_t> shape, std::span<const std::int64_t> tensor_strides,
                      std::span<const std::int64_t> slot_strides, kernels::Segment& segment) {
  std::uint32_t rank = 0;  // filled from the innermost dimension outwards, and reversed at the end
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (rank > 0) {
      std::int64_t& inner = segment.shape[rank - 1];
      if (tensor_strides[i] == segment.tensor_strides[rank - 1] * inner &&
          slot_strides[i] == segment.slot_strides[rank - 1] * inner) {
        inner *= shape[i];
        continue;
      }
    }
    if (rank == kernels::kMaxRank) return false;
    segment.shape[rank] = shape[i];
    segment.tensor_strides[rank] = tensor_strides[i];
    segment.slot_strides[rank++] = slot_strides[i];
  }
  if (rank == 0) {  // one element
    segment.shape[0] = segment.tensor_strides[0] = segment.slot_strides[0] = 1;
    rank = 1;
  }
  segment.rank = rank;
  for (auto* side : {&segment.shape, &segment.tensor_strides, &segment.slot_strides})
    std::reverse(side->begin(), side->begin() + rank);
  return true;
}

}  // namespace bascule::inline v0
