// Where a step's completion groups come from: this program's own problems (engine_groups.h), or environments of Atropos
// (atropos_groups.h).
//
// Threads: the trainer's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/report.h>
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>

namespace bascule::ref {

class GroupSource {
 public:
  virtual ~GroupSource() = default;

  // Call this when the engines serve one more version.
  virtual void published(const SendReport& report) { newest_version_ = report.version; }
  std::uint64_t newest_version() const { return newest_version_; }

  struct Rollouts {
    std::vector<CompletionGroup> groups;  // one per problem that has completions, in the problems' order
    RolloutFigures figures;
  };
  // Blocks until there are groups for `step`. Returns UNAVAILABLE if too few completions are left, and CANCELLED if the
  // run is stopped.
  virtual absl::StatusOr<Rollouts> next(std::int64_t step) = 0;
  // Whether the groups of next() have their rewards already.
  virtual bool is_scored() const { return false; }

  // May replace flat groups by others, and returns by how many. `groups` must be scored already; `score` scores the new
  // ones. If no group varies, old or new, the flat groups stay. Returns CANCELLED if the run is stopped, and otherwise
  // only errors of `score`.
  using Score = std::function<absl::Status(std::vector<CompletionGroup>& groups)>;
  virtual absl::StatusOr<std::int64_t> replace_flat(std::int64_t /*step*/, std::vector<CompletionGroup>& /*groups*/,
                                                    const Score& /*score*/) {
    return 0;
  }

 private:
  std::uint64_t newest_version_ = 0;
};

}  // namespace bascule::ref
