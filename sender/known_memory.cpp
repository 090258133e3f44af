#include <bascule/sender/known_memory.h>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// For a view that has elements.
MemoryRange range_of(const TensorView& view) {
  MemoryRange range{.tensor = view.name, .first = view.data, .last = view.data};
  if (view.strides.empty()) {
    range.last += byte_count(view.dtype, view.shape);
  } else {
    const auto element = static_cast<std::int64_t>(size_of(view.dtype));
    for (std::size_t d = 0; d < view.shape.size(); ++d) {
      const std::int64_t way = (view.shape[d] - 1) * view.strides[d] * element;
      (way < 0 ? range.first : range.last) += way;
    }
    range.last += element;
  }
  --range.last;
  return range;
}

}  // namespace

absl::Status KnownMemory::check(int device, std::span<const TensorView> views, std::uint64_t plan_number,
                                std::uint64_t read_number) {
  if (plan_number == plan_number_ && read_number == read_number_) return absl::OkStatus();
  const bool same_plan = plan_number == plan_number_ && known_.size() == views.size();
  known_.resize(views.size());
  std::vector<MemoryRange> asked;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    if (same_plan && known_[i].data == view.data) continue;
    if (byte_count(view.dtype, view.shape) == 0) continue;
    const MemoryRange range = range_of(view);
    if (known_[i].first != range.first || known_[i].last != range.last) asked.push_back(range);
  }
  BASCULE_TRY(check_memory(device, asked));
  plan_number_ = plan_number;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    if ((same_plan && known_[i].data == view.data) || byte_count(view.dtype, view.shape) == 0) continue;
    const MemoryRange range = range_of(view);
    known_[i] = {.data = view.data, .first = range.first, .last = range.last};
  }
  read_number_ = read_number;
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
