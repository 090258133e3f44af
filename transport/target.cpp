#include <bascule/transport/target.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_set>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

absl::Status check_target(const TargetTensor& target) {
  BASCULE_TRY(annotate(check_tensor_name(target.name), "register_model: target"));
  for (const Part& part : target.parts)
    BASCULE_TRY(annotate(check_tensor_name(part.tensor), cat("target ", target.name, ", part")));
  BASCULE_ASSIGN(const std::uint64_t bytes, checked_byte_count(target.name, target.dtype, target.shape, "target"));
  if (target.data == nullptr && bytes > 0) return invalid_argument("target ", to_string(target.spec()), " has no data");
  for (const Part& part : target.parts)
    for (const Slice& slice : part.slices)
      if (slice.dim < 0 || slice.begin < 0 || slice.end < slice.begin)
        return invalid_argument("target ", target.name, ": the slice [", slice.begin, ", ", slice.end,
                                ") of dimension ", slice.dim, " of ", part.tensor,
                                " is invalid; expected 0 <= begin <= end, and a dimension of 0 or more");
  return absl::OkStatus();
}

}  // namespace

absl::Status check_targets(std::span<const TargetTensor> targets) {
  std::unordered_set<std::string_view> names;
  std::vector<const TargetTensor*> by_address;
  for (const TargetTensor& target : targets) {
    BASCULE_TRY(check_target(target));
    if (!names.insert(target.name).second)
      return invalid_argument("target ", target.name, " stands twice; names must be unique");
    if (byte_count(target.dtype, target.shape) > 0) by_address.push_back(&target);
  }
  std::ranges::sort(by_address, std::less<>(), &TargetTensor::data);
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const TargetTensor &before = *by_address[i - 1], &target = *by_address[i];
    const bool one_storage = before.data == target.data && before.dtype == target.dtype && before.shape == target.shape;
    if (!one_storage && target.data < before.data + byte_count(before.dtype, before.shape))
      return invalid_argument("targets ", to_string(before.spec()), " and ", to_string(target.spec()),
                              " share memory; only whole tensors of one type and shape may be tied");
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
