#include <bascule/transport/name_order.h>

#include <algorithm>

namespace bascule::inline v0 {
namespace {

struct Named {
  std::uint64_t head = 0;
  std::uint32_t number = 0;
};

// The eight bytes of the name from `at`, of which the first is the highest, and zeros after its end.
std::uint64_t head_of(std::string_view name, std::size_t at) {
  std::uint64_t head = 0;
  for (std::size_t i = at; i < at + sizeof(head); ++i)
    head = head << 8 | (i < name.size() ? static_cast<unsigned char>(name[i]) : 0);
  return head;
}

// How many bytes all of these names have in common, of which `known` are known.
std::size_t common_bytes(std::span<const std::string_view> names, std::span<const Named> some, std::size_t known) {
  std::string_view common = names[some.front().number].substr(known);
  for (const Named& each : some)
    common = {common.begin(), std::ranges::mismatch(common, names[each.number].substr(known)).in1};
  return known + common.size();
}

// Sorts names whose first `known` bytes are the same.
void sort(std::span<const std::string_view> names, std::span<Named> some, std::size_t known) {
  const std::size_t at = common_bytes(names, some, known), end = at + sizeof(Named::head);
  for (Named& each : some) each.head = head_of(names[each.number], at);
  std::ranges::sort(some, {}, &Named::head);
  while (!some.empty()) {
    const auto next = std::ranges::upper_bound(some, some.front().head, {}, &Named::head);
    const std::span<Named> same = some.first(static_cast<std::size_t>(next - some.begin()));
    some = some.subspan(same.size());
    if (same.size() == 1) continue;
    // A zero may stand for the end of a name, or for itself.
    if (std::ranges::any_of(same, [&](const Named& each) { return names[each.number].size() < end; })) {
      std::ranges::sort(same, {}, [&](const Named& each) { return names[each.number]; });
    } else {
      sort(names, same, end);
    }
  }
}

}  // namespace

std::vector<std::uint32_t> name_order(std::span<const std::string_view> names) {
  std::vector<Named> all(names.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i].number = i;
  if (!all.empty()) sort(names, all, 0);
  std::vector<std::uint32_t> order;
  order.reserve(all.size());
  for (const Named& each : all) order.push_back(each.number);
  return order;
}

}  // namespace bascule::inline v0
