// Alternates Bascule's code ("ours") with its baseline (ours, baseline, ours …), so that other work on the machine
// slows both.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include <bascule/bench/rig.h>
#include <bascule/bench/scenario.h>

namespace bascule::bench {

inline constexpr int kWarmUps = 2;  // turns that do not count: slots, caches and connections are new

// Adds `repeat` samples of both to `record`. The baseline is called right after ours, and returns seconds.
absl::Status take_turns(Context& context, Record& record, int repeat, const std::function<absl::StatusOr<Turn>()>& ours,
                        const std::function<absl::StatusOr<double>()>& baseline);

void add_sample(Record& record, const Turn& ours, double baseline_seconds);

}  // namespace bascule::bench
