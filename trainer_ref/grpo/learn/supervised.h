// Supervised training on a task's own answers: how a checkpoint to start from is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/grpo/learn/optimizer.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>

namespace bascule::ref {

struct SupervisedOptions {
  std::int64_t steps = 1500;
  std::size_t problems_per_step = 256;
  std::size_t micro_batch = 64;         // answers that go through the model at a time, at most
  std::int64_t micro_batch_tokens = 0;  // and tokens of these, prompts and answers; 0: any number
  double label_noise = 0;               // share of an answer's digits that are replaced by random ones
  std::uint64_t seed = 0;
  std::int64_t max_bad_steps = 10;  // in a row, of which none changed the weights, before the training ends
  OptimizerOptions optimizer = {};
};

struct SupervisedHooks {
  std::function<void(std::string_view)> log = [](std::string_view) {};  // the first step, then a line every ten seconds
  std::function<bool()> stopped = [] { return false; };                 // asked before every step
  std::function<void()> after_first_step = [] {};
};

// Weights drawn as transformers draws them: normal with deviation 0.02, norms 1, biases 0; the same on every device.
absl::StatusOr<Policy> random_policy(const ModelConfig& config, std::uint64_t seed, at::Device device = at::kCPU,
                                     const ComputeOptions& compute = {});

// `answer` with each digit replaced by a random one with probability `noise`, so that every digit stays right with
// probability 1 − 0.9 · noise.
std::string with_noise(std::string_view answer, double noise, Random& random);

// The text that a model is trained to write after the prompt of `problem`: the answer, or, if the data has a rationale,
// the rationale and then "#### " with the answer, as in GSM8K. `noise` changes the answer alone.
std::string sft_target(const Problem& problem, double noise, Random& random);

// How many tokens the target of `problem` has, with its end. INVALID_ARGUMENT: it has none, the tokenizer cannot write
// it, or the model has no positions for it after a prompt of `prompt_tokens`.
absl::StatusOr<std::int64_t> check_sft_target(const PromptWriter& prompts, const ModelConfig& config,
                                              const Problem& problem, std::int64_t prompt_tokens);

// Minimises the cross-entropy of each sft_target() and its end token, given the prompt; problems in the order of
// prompts_of_step(). CANCELLED: it was stopped; the policy has the weights of the last step.
// FAILED_PRECONDITION: max_bad_steps. Other errors: a problem that check_sft_target() would have named.
absl::Status train_supervised(Policy& policy, const PromptWriter& prompts, const Task& task,
                              const SupervisedOptions& options, const SupervisedHooks& hooks = {});

// Share of `problems` whose sft_target() without noise, end included, the model finds most likely at every token.
// They go through the model in micro-batches, as SupervisedOptions has them. CANCELLED: `stopped` said so.
absl::StatusOr<double> greedy_accuracy(
    const Policy& policy, const PromptWriter& prompts, std::span<const Problem> problems, std::size_t micro_batch = 64,
    std::int64_t micro_batch_tokens = 0, const std::function<bool()>& stopped = [] { return false; });

}  // namespace bascule::ref
