#include "transport/plan.h"

#include <algorithm>
#include <unordered_map>

#include "transport/text.h"

namespace bascule {
namespace {

// Fills shape and strides of `segment`: dimensions of size 1 are dropped, neighbours that lie in one run are
// merged. False where more than kMaxRank dimensions remain.
bool merge_dimensions(const TensorView& tensor, kernels::Segment& segment) {
  std::array<std::int64_t, kernels::kMaxRank> shape{}, strides{};
  std::uint32_t rank = 0;  // filled from the innermost dimension outwards
  std::int64_t dense = 1;  // stride of dimension i in C order
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const std::int64_t size = tensor.shape[i];
    const std::int64_t stride = tensor.strides.empty() ? dense : tensor.strides[i];
    dense *= size;
    if (size == 1) continue;
    if (rank > 0 && stride == strides[rank - 1] * shape[rank - 1]) {
      shape[rank - 1] *= size;
    } else if (rank == kernels::kMaxRank) {
      return false;
    } else {
      shape[rank] = size;
      strides[rank++] = stride;
    }
  }
  if (rank == 0) shape[0] = 1, strides[0] = 1, rank = 1;  // one element
  segment.rank = rank;
  std::int64_t slot_stride = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const std::uint32_t outer = rank - 1 - i;
    segment.shape[outer] = shape[i];
    segment.tensor_strides[outer] = strides[i];
    segment.slot_strides[outer] = slot_stride;
    slot_stride *= shape[i];
  }
  return true;
}

}  // namespace

absl::StatusOr<Plan> Plan::gather(const Layout& layout, std::span<const TensorView> tensors) {
  std::unordered_map<std::string_view, std::uint32_t> position;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) position.emplace(tensors[i].name, i);
  Plan plan;
  plan.segments_.reserve(layout.tensors().size());
  for (const Placement& placement : layout.tensors()) {
    if (placement.bytes == 0) continue;
    const auto found = position.find(placement.spec.name);
    if (found == position.end()) return invalid_argument("tensor ", placement.spec.name, " of the layout is not there");
    const TensorView& tensor = tensors[found->second];
    if (!kernels::can_cast(tensor.dtype, placement.spec.dtype))
      return invalid_argument("tensor ", placement.spec.name, " cannot be cast from ", name_of(tensor.dtype), " to ",
                              name_of(placement.spec.dtype));
    if (!std::ranges::equal(tensor.shape, placement.spec.shape))
      return invalid_argument("tensor ", to_string(tensor), " has another shape than ", to_string(placement.spec),
                              " of the layout");
    kernels::Segment segment{.tensor = found->second,
                             .tensor_dtype = tensor.dtype,
                             .slot_dtype = placement.spec.dtype,
                             .slot_offset = placement.offset,
                             .elements = element_count(placement.spec.shape)};
    if (!merge_dimensions(tensor, segment))
      return invalid_argument("tensor ", placement.spec.name, " lies in more than ", kernels::kMaxRank,
                              " separate strides; make it contiguous");
    plan.segments_.push_back(segment);
  }
  return plan;
}

}  // namespace bascule
