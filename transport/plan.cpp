#include <bascule/transport/plan.h>

#include <algorithm>
#include <unordered_map>

#include <bascule/kernels/pack.h>
#include <bascule/transport/merge_dimensions.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
absl::StatusOr<Plan> Plan::gather(const Layout& layout, std::span<const TensorView> tensors) {
  std::unordered_map<std::string_view, std::uint32_t> position;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) position.emplace(tensors[i].name, i);
  Plan plan;
  plan.segments_.reserve(layout.tensors().size());
  for (const Placement& placement : layout.tensors()) {
    if (placement.bytes == 0) continue;
    const auto found = position.find(placement.spec.name);
    if (found == position.end())
      return invalid_argument("tensor ", placement.spec.name, " of the layout was not given");
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
    const std::vector<std::int64_t> dense = dense_strides(tensor.shape);
    if (!merge_dimensions(tensor.shape, tensor.strides.empty() ? std::span(dense) : tensor.strides, dense, segment))
      return invalid_argument("tensor ", placement.spec.name, " lies in more than ", kernels::kMaxRank,
                              " separate strides; make it contiguous");
    plan.segments_.push_back(segment);
  }
  return plan;
}

}  // namespace bascule::inline v0
