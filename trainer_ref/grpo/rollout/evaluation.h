// Evaluation: the run's rewards on held-out problems, whose completions the engines make with the weights that they
// serve.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/prompt.h>
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/reward/reward_list.h>
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

struct EvaluationOptions {
  int samples = 1;  // per problem, at temperature 1, from all tokens: the model's own distribution
  std::int64_t max_tokens = 16;
  std::uint64_t seed = 0;
};

struct Evaluation {
  double reward = 0;                       // mean of the sampled completions that are scored, all rewards together
  double greedy = 0;                       // mean of the greedy ones; NaN, like the above, if none is scored
  RewardMeans rewards;                     // the mean of each, over the sampled ones
  std::vector<CompletionGroup> sampled;    // a completion group per problem
  std::vector<CompletionGroup> likeliest;  // one completion each
};

// Blocks until the engines and the rewards have answered. `problems` must outlive the result.
absl::StatusOr<Evaluation> evaluate(EnginePool& pool, const PromptWriter& prompts, std::span<const Problem> problems,
                                    std::span<const WeightedReward> rewards, const EvaluationOptions& options);

// Returns the engines' answers to `requests`, with text; a lost request has no rollouts.
std::vector<CompletionGroup> groups_of(std::vector<RolloutRequest> requests, std::vector<Generation> generations,
                                       const Tokenizer& tokenizer);

// The first `count` problems with their completions, in readable form: {prompt, answer, sampled: [text, …],
// sampled_rewards: [number, …], greedy: [text], greedy_rewards: [number]}. The lists lack completions that were lost;
// the reward of an unscored one is null.
nlohmann::json shown_completions(const Evaluation& evaluation, std::size_t count);

}  // namespace bascule::ref
