// Tasks: problems with known answers, split into those to train on and those held out, and the order of a
// run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct Task {
  std::vector<Problem> train;
  std::vector<Problem> held_out;  // never trained on: a file of their own, or one in ten, by a hash of the prompt
};

// All sums of two numbers below `operands` (2 to 50: a sum has at most two digits): "07+30=", whose answer is
// the sum's two digits in reverse, "73", the order in which carrying goes.
absl::StatusOr<Task> arithmetic_task(int operands);

// Splits by the prompt alone: the same prompt always lands on the same side, in every run and every task.
// INVALID_ARGUMENT: fewer than two different prompts cannot be split.
absl::StatusOr<Task> split(std::vector<Problem> problems);

// Which of `problems` training problems step `step` asks, `count` of them. Each pass over the problems is a
// new permutation; the order is a function of (seed, step) alone, so that a resumed run asks what the first
// would have.
std::vector<std::size_t> prompts_of_step(std::size_t problems, std::size_t count, std::uint64_t seed,
                                         std::int64_t step);

// The step in which `epochs` passes over the problems end, counted from 1: rounded up.
std::int64_t steps_of_epochs(double epochs, std::size_t problems, std::size_t prompts_per_step);

}  // namespace bascule::ref
