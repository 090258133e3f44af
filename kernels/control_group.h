// How much of the machine this process may use: the limits of its control groups and of all enclosing groups, in
// version 1, version 2, or both side by side.
//
// Any thread. Every call reads a few kernel files and keeps no state. If a file cannot be read, it counts as no limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bascule::inline v0::kernels {

struct ControlGroupLimits {
  std::optional<double> cores;                      // CPU seconds per second: 1.5 is one and a half cores
  std::optional<std::uint64_t> memory_left_bytes;   // limit − use, of the tightest group; file caches count as free
  std::optional<std::uint64_t> memory_limit_bytes;  // of that group
  std::optional<std::uint64_t> threads_left, threads_limit;  // of the tightest group: pids.max, which counts threads
};

// Tests with their own tree of files pass `root`, which is prepended to /proc and to every folder that /proc names.
ControlGroupLimits control_group_limits(const std::string& root = "");

// Returns how many threads can compute at once, at least 1: the number of cores that this process may run on (by cpuset
// and taskset), or fewer if its control group has less CPU time. Half a core counts as one.
int usable_cores();

}  // namespace bascule::inline v0::kernels
