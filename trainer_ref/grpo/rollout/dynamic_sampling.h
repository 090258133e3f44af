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

// Chooses `count` further problems for `step`, and returns their indices (below `problems`). It skips the ones in
// `asked`, and returns fewer if no others are left. The same arguments give the same result.
std::vector<std::size_t> further_prompts(std::size_t problems, std::size_t count, std::uint64_t seed, std::int64_t step,
                                         const std::set<std::size_t>& asked);

}  // namespace bascule::ref
