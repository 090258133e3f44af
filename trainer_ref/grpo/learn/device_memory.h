// What training took of a device's memory, and what it is told where there was too little.
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

// What this process allocated at most since it began, or since forget_peak().
struct DevicePeak {
  std::int64_t allocated_bytes = 0;
  std::int64_t kept_bytes = 0;  // with what LibTorch keeps to use again
};

// nullopt: a CPU, where nobody counts.
std::optional<DevicePeak> peak_on(at::Device device);
void forget_peak(at::Device device);

// A line: what was planned, and the peak of what this process allocated. Empty on a CPU.
std::string measured_beside(const MemoryPlan& plan, at::Device device);

// What `device` or, of a CPU, this process's control group has left.
std::int64_t free_bytes_on(at::Device device);

// Of training: RESOURCE_EXHAUSTED, with the flags that need less where memory was short.
absl::Status device_failed(at::Device device, const c10::Error& error);

}  // namespace bascule::ref
