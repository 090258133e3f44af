// What this process may use of the machine: the limits of its control groups and of all groups around them, in version
// 1, version 2, or both side by side.
//
// Any thread; reads a few files of the kernel's at each call and keeps no state. What cannot be read limits nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bascule::inline v0::kernels {

struct ControlGroupLimits {
  std::optional<double> cores;                      // CPU seconds a second: 1.5 is one and a half cores
  std::optional<std::uint64_t> memory_left_bytes;   // limit − use, of the tightest group; file caches count as free
  std::optional<std::uint64_t> memory_limit_bytes;  // of that group
  std::optional<std::uint64_t> threads_left, threads_limit;  // of the tightest: pids.max, which counts threads
};

// `root` stands before /proc and before every folder that /proc names: a test gives its own tree.
ControlGroupLimits control_group_limits(const std::string& root = "");

// Threads that can compute at once here, 1 or more: the cores that this process may run on (cpuset and taskset
// included), or fewer where its control group has less CPU time. Half a core counts as one.
int usable_cores();

}  // namespace bascule::inline v0::kernels
