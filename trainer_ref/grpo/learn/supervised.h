// Supervised training on a task's own answers. It makes a checkpoint from which GRPO can start.
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
  std::size_t micro_batch = 64;         // most answers that go through the model at a time
  std::int64_t micro_batch_tokens = 0;  // and most tokens of their prompts and answers; 0: any number
  double label_noise = 0;               // share of an answer's digits that are replaced by random ones
  std::uint64_t seed = 0;
  std::int64_t max_bad_steps = 10;  // consecutive steps that leave the weights unchanged, before the training ends
  OptimizerOptions optimizer = {};
};

struct SupervisedHooks {
  std::function<void(std::string_view)> log = [](std::string_view) {};  // the first step, then a line every ten seconds
  std::function<bool()> stopped = [] { return false; };                 // called before every step
  std::function<void()> after_first_step = [] {};
};

// Random weights, distributed as in transformers: normal with deviation 0.02, norms 1, biases 0; the same on
// every device.
absl::StatusOr<Policy> random_policy(const ModelConfig& config, std::uint64_t seed, at::Device device = at::kCPU,
                                     const ComputeOptions& compute = {});

// Replaces each digit of `answer` by a random one with probability `noise`; the digit stays right with probability
// 1 − 0.9 · noise.
std::string with_noise(std::string_view answer, double noise, Random& random);

// The text that a model is trained to write after the prompt of `problem`: the answer, or, if the data has a rationale,
// the rationale and then "#### " with the answer, as in GSM8K. `noise` changes the answer alone.
std::string sft_target(const Problem& problem, double noise, Random& random);

// Returns the number of tokens of the target of `problem`, with its end token. Returns INVALID_ARGUMENT if the target
// is empty, if the tokenizer cannot encode it, or if the model has too few positions for it after a prompt of
// `prompt_tokens`.
absl::StatusOr<std::int64_t> check_sft_target(const PromptWriter& prompts, const ModelConfig& config,
                                              const Problem& problem, std::int64_t prompt_tokens);

// Minimises the cross-entropy of each sft_target() and its end token, given the prompt, with problems in the order of
// prompts_of_step(). Returns CANCELLED if it was stopped: the policy then has the weights of the last step. Returns
// FAILED_PRECONDITION if max_bad_steps is reached. Other errors come from check_sft_target().
absl::Status train_supervised(Policy& policy, const PromptWriter& prompts, const Task& task,
                              const SupervisedOptions& options, const SupervisedHooks& hooks = {});

// Returns the share of `problems` for which the model's likeliest tokens are exactly sft_target() without noise and the
// end token. The problems go through the model in micro-batches as in SupervisedOptions. Returns CANCELLED if `stopped`
// returned true.
absl::StatusOr<double> greedy_accuracy(
    const Policy& policy, const PromptWriter& prompts, std::span<const Problem> problems, std::size_t micro_batch = 64,
    std::int64_t micro_batch_tokens = 0, const std::function<bool()>& stopped = [] { return false; });

}  // namespace bascule::ref
