#include <bascule/trainer_ref/engine/schedule/step.h>

#include <algorithm>
#include <numeric>

namespace bascule::ref {
namespace {

constexpr std::size_t kShortContext = 64;  // below it, padding costs less than another group

}  // namespace

std::pair<std::size_t, std::size_t> Row::scored() const {
  if (!sequence->wants_scores()) return {end(), end()};
  const std::size_t last = std::min(end(), sequence->prompt_tokens - 1);
  const std::size_t first = std::max(begin, sequence->prompt_scores->of.size());
  return {std::min(first, last), last};
}

std::vector<std::vector<std::size_t>> padded_groups(std::span<const Row> rows) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [rows](std::size_t a, std::size_t b) {
    return std::pair(rows[a].count, rows[a].end()) < std::pair(rows[b].count, rows[b].end());
  });
  std::vector<std::vector<std::size_t>> groups;
  std::size_t shortest = 0, longest = 0;  // contexts of the group
  for (const std::size_t i : order) {
    const std::size_t context = rows[i].end();
    const bool fits = !groups.empty() && rows[i].count <= 2 * rows[groups.back().front()].count &&
                      (rows[i].count == 1) == (rows[groups.back().front()].count == 1) &&
                      std::max(longest, context) <= std::max(kShortContext, 2 * std::min(shortest, context));
    if (!fits) {
      groups.emplace_back();
      shortest = longest = context;
    }
    groups.back().push_back(i);
    shortest = std::min(shortest, context);
    longest = std::max(longest, context);
  }
  return groups;
}

}  // namespace bascule::ref
