// Dynamic sampling (DAPO, arXiv 2503.14476, 3.2): a completion group with one reward throughout teaches nothing, and is
// replaced by the group of another problem.
//
// Threads: any. Pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

// Takes the groups that are not flat out of `groups`, in their order. Those that are flat stay there.
std::vector<CompletionGroup> take_varied(std::vector<CompletionGroup>& groups);

// The next `count` of `problems` to be asked in place of others of `step`, none of `asked`; fewer where no more are
// left. The same arguments give the same ones.
std::vector<std::size_t> further_prompts(std::size_t problems, std::size_t count, std::uint64_t seed, std::int64_t step,
                                         const std::set<std::size_t>& asked);

}  // namespace bascule::ref
