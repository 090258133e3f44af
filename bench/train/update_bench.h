// Updates of a policy with random weights, by rows of random tokens: how long they take, and what memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/memory_plan.h>
#include <bascule/trainer_ref/grpo/update.h>

namespace bascule::bench {

struct UpdateShape {
  ref::ModelConfig config = {};
  ref::ComputeOptions compute = {};
  at::Device device = at::kCPU;
  std::int64_t rows = 64, row_tokens = 1024;
  std::int64_t prompt_tokens = 256;  // of each row; the rest is a completion
  ref::UpdateOptions update = {};
};

// Operations of one update by the usual count: six for each weight and token that it multiplies (two in the forward
// pass, four in the backward pass), and those of causal attention. What checkpointed layers compute again is no work
// done, and not in it.
double operations_of(const UpdateShape& shape);

ref::MemoryPlan plan_of(const UpdateShape& shape);

struct UpdateTimes {
  std::vector<double> seconds;  // of each update, the device's work included
  // On a GPU: the most that was allocated, and with what LibTorch keeps.
  std::optional<std::int64_t> peak_bytes, kept_bytes;
};
absl::StatusOr<UpdateTimes> time_updates(const UpdateShape& shape, int warm_ups, int repeat);

// On a GPU: the most that the log-probabilities of a whole update take in forward and backward pass, beside hidden
// states, weights and their gradients.
std::optional<std::int64_t> log_probs_bytes(const UpdateShape& shape);

}  // namespace bascule::bench
