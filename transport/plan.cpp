#include <bascule/transport/plan.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include <bascule/kernels/pack.h>
#include <bascule/transport/merge_dimensions.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

kernels::Factor factor_of(const TensorView& matrix, std::uint32_t tensor) {
  const bool dense = matrix.strides.empty();
  return {.tensor = tensor,
          .dtype = matrix.dtype,
          .row_stride = dense ? matrix.shape[1] : matrix.strides[0],
          .column_stride = dense ? 1 : matrix.strides[1]};
}

// Checks that pack can do the tensor's arithmetic. `factor` is the index of its product's first factor.
absl::StatusOr<kernels::Arithmetic> arithmetic_of(const TensorView& tensor, DType sent, std::uint32_t factor) {
  for (const DType dtype : {tensor.dtype, sent})
    if (!kernels::widens_to_f32(dtype))
      return invalid_argument("tensor ", tensor.name, " is ", tensor.delta != nullptr ? "merged" : "scaled",
                              " while it is sent, which needs F32, BF16 or F16; found ", name_of(dtype));
  if (tensor.delta == nullptr) return kernels::Arithmetic{.scale = tensor.scale};
  const TensorView &b = tensor.delta->b, &a = tensor.delta->a;
  const auto described = [&] {
    return cat("tensor ", to_string(tensor), ": the factors of its product are b ", to_string(b), " and a ",
               to_string(a));
  };
  for (const TensorView* const matrix : {&b, &a})
    if (matrix->shape.size() != 2 || !kernels::widens_to_f32(matrix->dtype) || matrix->device != tensor.device ||
        (!matrix->strides.empty() && matrix->strides.size() != 2))
      return invalid_argument(described(), "; expected two matrices of F32, BF16 or F16 in ",
                              place_name(tensor.device));
  if (tensor.scale != 1) return invalid_argument(described(), "; give the scale with the product, not with the tensor");
  const std::int64_t rank = b.shape[1];
  if (rank < 1 || rank > static_cast<std::int64_t>(kernels::kMaxProductRank))
    return invalid_argument(described(), "; expected a rank of 1 to ", kernels::kMaxProductRank);
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const auto columns = static_cast<std::int64_t>(element_count(tensor.shape)) / rows;
  if (b.shape[0] != rows || a.shape[0] != rank || a.shape[1] != columns)
    return invalid_argument(described(), "; expected b [", rows, ", rank] and a [rank, ", columns, "]");
  return kernels::Arithmetic{.scale = tensor.delta->scale,
                             .rank = static_cast<std::uint32_t>(rank),
                             .columns = static_cast<std::uint64_t>(columns),
                             .left = factor_of(b, factor),
                             .right = factor_of(a, factor + 1)};
}

}  // namespace

absl::StatusOr<Plan> Plan::gather(const Layout& layout, std::span<const TensorView> tensors) {
  std::vector<std::uint32_t> first_factor;  // by tensor
  first_factor.reserve(tensors.size());
  auto factors = static_cast<std::uint32_t>(tensors.size());
  for (const TensorView& tensor : tensors) {
    first_factor.push_back(factors);
    if (tensor.delta != nullptr) factors += 2;
  }
  // Most models are given in the layout's order, and names need no table then.
  std::unordered_map<std::string_view, std::uint32_t> position;
  std::uint32_t next = 0;
  const auto find = [&](std::string_view name) -> std::optional<std::uint32_t> {
    if (next < tensors.size() && tensors[next].name == name) return next++;
    if (position.empty())
      for (std::uint32_t i = 0; i < tensors.size(); ++i) position.emplace(tensors[i].name, i);
    const auto found = position.find(name);
    if (found == position.end()) return std::nullopt;
    next = found->second + 1;
    return found->second;
  };
  Plan plan;
  plan.segments_.reserve(layout.tensors().size());
  for (const Placement& placement : layout.tensors()) {
    if (placement.bytes == 0) continue;
    const std::optional<std::uint32_t> found = find(placement.spec.name);
    if (!found) return invalid_argument("tensor ", placement.spec.name, " of the layout was not given");
    const TensorView& tensor = tensors[*found];
    if (!kernels::can_cast(tensor.dtype, placement.spec.dtype))
      return invalid_argument("tensor ", placement.spec.name, " cannot be cast from ", name_of(tensor.dtype), " to ",
                              name_of(placement.spec.dtype));
    if (!std::ranges::equal(tensor.shape, placement.spec.shape))
      return invalid_argument("tensor ", to_string(tensor), " has another shape than ", to_string(placement.spec),
                              " of the layout");
    kernels::Segment segment{.tensor = *found,
                             .tensor_dtype = tensor.dtype,
                             .slot_dtype = placement.spec.dtype,
                             .slot_offset = placement.offset,
                             .elements = element_count(placement.spec.shape)};
    const std::vector<std::int64_t> dense = dense_strides(tensor.shape);
    if (!merge_dimensions(tensor.shape, tensor.strides.empty() ? std::span(dense) : tensor.strides, dense, segment))
      return invalid_argument("tensor ", placement.spec.name, " lies in more than ", kernels::kMaxRank,
                              " separate strides; make it contiguous");
    if (tensor.scale != 1 || tensor.delta != nullptr) {
      segment.arithmetic = static_cast<std::uint32_t>(plan.arithmetic_.size());
      BASCULE_ASSIGN(kernels::Arithmetic arithmetic, arithmetic_of(tensor, placement.spec.dtype, first_factor[*found]));
      plan.arithmetic_.push_back(arithmetic);
    }
    plan.segments_.push_back(segment);
  }
  return plan;
}

}  // namespace bascule::inline v0
