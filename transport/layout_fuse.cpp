// Tensors of a layout that a worker wants to read as one.
#include <algorithm>
#include <unordered_set>

#include <bascule/transport/layout.h>
#include <bascule/transport/placing_rank.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<TensorSpec> Layout::join(std::span<const std::string> names) const {
  TensorSpec joined;
  std::unordered_set<const Placement*> taken;
  const Placement* first = nullptr;
  for (const std::string& name : names) {
    const Placement* tensor = find(name);
    if (tensor == nullptr) return invalid_argument("tensor ", name, " is not sent");
    if (!taken.insert(tensor).second) return invalid_argument("tensor ", name, " stands twice");
    if (tensor->spec.shape.empty())
      return invalid_argument("tensor ", to_string(tensor->spec), " is a scalar; it has no dimension to join along");
    const std::span<const std::int64_t> shape = tensor->spec.shape;
    if (first == nullptr) {
      first = tensor;
      joined.dtype = tensor->spec.dtype;
      joined.shape = tensor->spec.shape;
    } else if (tensor->spec.dtype != joined.dtype ||
               !std::ranges::equal(shape.subspan(1), std::span(joined.shape).subspan(1))) {
      return invalid_argument("tensor ", to_string(tensor->spec), " cannot follow ", to_string(first->spec),
                              "; their types and all dimensions but the first must be the same");
    } else if (__builtin_add_overflow(joined.shape[0], shape[0], joined.shape.data())) {
      return invalid_argument("tensor ", to_string(tensor->spec), " makes the joined tensor longer than 2^63");
    }
  }
  if (taken.empty()) return invalid_argument("no tensors to join");
  return joined;
}

std::optional<std::uint64_t> Layout::joined_at(std::span<const std::string> names) const {
  if (division_) return std::nullopt;
  std::optional<std::uint64_t> begin, end;
  for (const std::string& name : names) {
    const Placement* tensor = find(name);
    if (tensor == nullptr || (end && tensor->offset != *end)) return std::nullopt;
    if (!begin) begin = tensor->offset;
    end = tensor->offset + tensor->bytes;
  }
  return begin;
}

// Reorders the tensors, treating each list as one tensor.
absl::Status Layout::fuse(std::span<const std::vector<std::string>> lists) {
  struct Unit {
    std::vector<std::uint32_t> tensors;
    std::uint64_t bytes = 0;
  };
  std::vector<Unit> fused;
  std::vector<std::optional<std::size_t>> fused_in(tensors_.size());
  for (const std::vector<std::string>& list : lists) {
    if (!join(list).ok()) continue;
    Unit unit;
    for (const std::string& name : list) {
      unit.tensors.push_back(static_cast<std::uint32_t>(find(name) - tensors_.data()));
      unit.bytes += tensors_[unit.tensors.back()].bytes;
    }
    if (std::ranges::any_of(unit.tensors, [&](std::uint32_t i) { return fused_in[i].has_value(); })) continue;
    for (const std::uint32_t i : unit.tensors) fused_in[i] = fused.size();
    fused.push_back(std::move(unit));
  }

  std::vector<Unit> units;  // in the order of their first tensors
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!fused_in[i]) {
      units.push_back({.tensors = {i}, .bytes = tensors_[i].bytes});
    } else if (Unit& unit = fused[*fused_in[i]]; !unit.tensors.empty()) {
      units.push_back(std::exchange(unit, {}));
    }
  }
  const auto rank = [this](const Unit& unit) { return placing_rank(unit.bytes, tensors_[unit.tensors[0]].spec.dtype); };
  std::ranges::stable_sort(units, [&](const Unit& a, const Unit& b) { return rank(a) > rank(b); });

  std::vector<Placement> ordered;
  std::vector<std::uint32_t> moved_to(tensors_.size());
  for (const Unit& unit : units) {
    for (const std::uint32_t i : unit.tensors) {
      moved_to[i] = static_cast<std::uint32_t>(ordered.size());
      ordered.push_back(std::move(tensors_[i]));
    }
  }
  tensors_ = std::move(ordered);
  for (Alias& alias : aliases_) alias.tensor = moved_to[alias.tensor];
  BASCULE_TRY(place());
  return index();
}

}  // namespace bascule::inline v0
