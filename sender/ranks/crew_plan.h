// CrewPlan: the proof that what the ranks of a sharded trainer state fits together, and what follows from it. Pure
// functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/sender/ranks/messages.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/shards.h>

namespace bascule::inline v0 {

struct CrewPlan {
  ShardPlan shards;                  // which rank sends what
  std::optional<Division> division;  // of slots that have a region per rank
};

// `stated` are the ranks' messages of kind kShards, by rank; their numbers are moved out. `granule` is the scheme's
// region_granule; 0: all ranks write the same memory. INVALID_ARGUMENT, or the error that a rank states, names the
// tensor and the ranks.
absl::StatusOr<CrewPlan> plan_crew(std::span<RankMessage* const> stated, std::uint64_t granule);

}  // namespace bascule::inline v0
