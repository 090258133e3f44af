// Tasks: problems with known answers, split into a training and a held-out part, and the order in which a run uses
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct Task {
  std::vector<Problem> train;
  std::vector<Problem> held_out;  // never trained on: from a separate file, or one in ten by a hash of the prompt
};

// All sums of two numbers below `operands` (2 to 50, so that a sum has at most two digits): the answer to "07+30=" is
// "73", the sum's two digits in reverse order, which is the order in which carries propagate.
absl::StatusOr<Task> arithmetic_task(int operands);

// Splits by the prompt alone: a prompt is on the same side in every run and every task. Returns INVALID_ARGUMENT if
// there are fewer than two different prompts.
absl::StatusOr<Task> split(std::vector<Problem> problems);

// The indices of the `count` problems, out of `problems`, that step `step` uses. Each pass over the problems is a new
// permutation. The order is a function of (seed, step) alone, so that a resumed run continues in the same order.
std::vector<std::size_t> prompts_of_step(std::size_t problems, std::size_t count, std::uint64_t seed,
                                         std::int64_t step);

// Returns how many steps `epochs` passes over the problems take, rounded up; at least 1.
std::int64_t steps_of_epochs(double epochs, std::size_t problems, std::size_t prompts_per_step);

}  // namespace bascule::ref
