// How much of a device's memory training took, and the error if there was too little.
//
// Threads: any.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/learn/memory_plan.h>

namespace bascule::ref {

// The most that this process has had allocated since it began, or since forget_peak().
struct DevicePeak {
  std::int64_t allocated_bytes = 0;
  std::int64_t kept_bytes = 0;  // including what LibTorch keeps for reuse
};

// Returns nullopt on a CPU, where LibTorch counts no allocations.
std::optional<DevicePeak> peak_on(at::Device device);
void forget_peak(at::Device device);

// Returns a line that compares the plan with the most memory that this process allocated; empty on a CPU.
std::string measured_beside(const MemoryPlan& plan, at::Device device);

// The free memory of `device` or, for a CPU, of this process's control group.
std::int64_t free_bytes_on(at::Device device);

// Converts an error of training to RESOURCE_EXHAUSTED; if memory ran out, the text names the flags that reduce it.
absl::Status device_failed(at::Device device, const c10::Error& error);

}  // namespace bascule::ref
