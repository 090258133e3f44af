// Times updates of a policy with random weights, on rows of random tokens, and measures how much memory they take.
//
// Used by --dry-run and bascule-bench-train.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/device_memory.h>
#include <bascule/trainer_ref/grpo/learn/update.h>

namespace bascule::ref {

struct TrialShape {
  ModelConfig config = {};
  ComputeOptions compute = {};
  at::Device device = at::kCPU;
  std::int64_t rows = 64, row_tokens = 1024;
  std::int64_t prompt_tokens = 256;  // of each row; the rest is a completion
  bool has_reference = false;
  std::optional<Adapter> adapter = {};  // trained over frozen weights, if given
  UpdateOptions update = {};
};

struct TrialTimes {
  std::vector<double> seconds;  // of each update, the device's work included
  std::optional<DevicePeak> peak;
};

// Runs `warm_ups` updates with all rows, then `repeat` that are timed. Returns RESOURCE_EXHAUSTED if the device has too
// little memory or failed, and INTERNAL if gradients were not finite.
absl::StatusOr<TrialTimes> try_updates(const TrialShape& shape, int warm_ups, int repeat);

}  // namespace bascule::ref
