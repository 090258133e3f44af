#include <bascule/sender/view_table.h>

#include <algorithm>
#include <string_view>

namespace bascule::inline v0 {

ViewTable::ViewTable(std::span<const TensorView> views) {
  entries_.reserve(views.size() + 1);
  for (const TensorView& view : views) {
    names_.insert(names_.end(), view.name.begin(), view.name.end());
    Entry entry{.name_end = names_.size(), .dtype = view.dtype};
    numbers_.insert(numbers_.end(), view.shape.begin(), view.shape.end());
    entry.shape_end = numbers_.size();
    numbers_.insert(numbers_.end(), view.strides.begin(), view.strides.end());
    entry.strides_end = numbers_.size();
    entries_.push_back(entry);
  }
}

bool ViewTable::same(std::size_t i, const TensorView& view) const {
  if (i + 1 >= entries_.size()) return false;
  const Entry &before = entries_[i], &entry = entries_[i + 1];
  const auto numbers = [this](std::size_t begin, std::size_t end) {
    return std::span(numbers_).subspan(begin, end - begin);
  };
  return view.dtype == entry.dtype &&
         view.name == std::string_view(names_.data() + before.name_end, entry.name_end - before.name_end) &&
         std::ranges::equal(view.shape, numbers(before.strides_end, entry.shape_end)) &&
         std::ranges::equal(view.strides, numbers(entry.shape_end, entry.strides_end));
}

}  // namespace bascule::inline v0
