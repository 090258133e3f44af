#include <bascule/sender/view_table.h>

#include <algorithm>
#include <bit>
#include <string_view>

namespace bascule::inline v0 {
namespace {

// Everything about a product but its factors' addresses.
std::vector<std::int64_t> delta_numbers(const LowRankView& delta) {
  std::vector<std::int64_t> numbers{std::bit_cast<std::int32_t>(delta.scale)};
  for (const TensorView* const factor : {&delta.b, &delta.a}) {
    numbers.push_back(static_cast<std::int64_t>(factor->dtype));
    numbers.push_back(factor->device);
    for (const auto& list : {factor->shape, factor->strides}) {
      numbers.push_back(std::ssize(list));
      numbers.insert(numbers.end(), list.begin(), list.end());
    }
  }
  return numbers;
}

}  // namespace

ViewTable::ViewTable(std::span<const TensorView> views) {
  entries_.reserve(views.size() + 1);
  for (const TensorView& view : views) {
    names_.insert(names_.end(), view.name.begin(), view.name.end());
    Entry entry{
        .name_end = names_.size(), .dtype = view.dtype, .scale = view.scale, .has_delta = view.delta != nullptr};
    numbers_.insert(numbers_.end(), view.shape.begin(), view.shape.end());
    entry.shape_end = numbers_.size();
    numbers_.insert(numbers_.end(), view.strides.begin(), view.strides.end());
    entry.strides_end = numbers_.size();
    if (view.delta != nullptr) {
      const std::vector<std::int64_t> delta = delta_numbers(*view.delta);
      numbers_.insert(numbers_.end(), delta.begin(), delta.end());
    }
    entry.end = numbers_.size();
    entries_.push_back(entry);
  }
}

bool ViewTable::same(std::size_t i, const TensorView& view) const {
  if (i + 1 >= entries_.size()) return false;
  const Entry &before = entries_[i], &entry = entries_[i + 1];
  const auto numbers = [this](std::size_t begin, std::size_t end) {
    return std::span(numbers_).subspan(begin, end - begin);
  };
  return view.dtype == entry.dtype && view.scale == entry.scale && (view.delta != nullptr) == entry.has_delta &&
         view.name == std::string_view(names_.data() + before.name_end, entry.name_end - before.name_end) &&
         std::ranges::equal(view.shape, numbers(before.end, entry.shape_end)) &&
         std::ranges::equal(view.strides, numbers(entry.shape_end, entry.strides_end)) &&
         (view.delta == nullptr ||
          std::ranges::equal(delta_numbers(*view.delta), numbers(entry.strides_end, entry.end)));
}

}  // namespace bascule::inline v0
