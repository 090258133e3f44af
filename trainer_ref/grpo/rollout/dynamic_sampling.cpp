#include <bascule/trainer_ref/grpo/rollout/dynamic_sampling.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/reward/advantage.h>

namespace bascule::ref {

std::vector<CompletionGroup> take_varied(std::vector<CompletionGroup>& groups) {
  const auto varied = std::stable_partition(groups.begin(), groups.end(), is_flat);
  std::vector<CompletionGroup> taken(std::make_move_iterator(varied), std::make_move_iterator(groups.end()));
  groups.erase(varied, groups.end());
  return taken;
}

std::vector<std::size_t> further_prompts(std::size_t problems, std::size_t count, std::uint64_t seed, std::int64_t step,
                                         const std::set<std::size_t>& asked) {
  constexpr std::uint64_t kOrder = 0x64796e61;  // a different order from prompts_of_step()
  std::vector<std::size_t> order(problems), chosen;
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, Random(mix(seed ^ kOrder), static_cast<std::uint64_t>(step)));
  for (auto i = order.begin(); i != order.end() && chosen.size() < count; ++i)
    if (!asked.contains(*i)) chosen.push_back(*i);
  return chosen;
}

}  // namespace bascule::ref
