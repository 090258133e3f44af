// Dynamic sampling (DAPO, arXiv 2503.14476, 3.2): replaces flat completion groups, from which nothing can be learned,
// by groups of other problems.
//
// Threads: any. Pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

// Moves the groups that are not flat out of `groups`, in their order. Flat groups stay there.
std::vector<CompletionGroup> take_varied(std::vector<CompletionGroup>& groups);

// Returns the indices of the next `count` of `problems` to replace others of `step`, without those in `asked`; fewer if
// none are left. The same arguments give the same result.
std::vector<std::size_t> further_prompts(std::size_t problems, std::size_t count, std::uint64_t seed, std::int64_t step,
                                         const std::set<std::size_t>& asked);

}  // namespace bascule::ref
