// The plain records that pass along the loop: a problem, what the engines answered, and what it was worth.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bascule::ref {

struct Problem {
  std::string prompt = {};  // text; empty: one of the two below alone
  std::string answer = {};
  nlohmann::json columns = nlohmann::json::object();  // the other columns of its line, for reward functions
  nlohmann::ordered_json messages = nullptr;  // [{"role": …, "content": …}, …] for a chat template; null: none
  std::vector<std::int64_t> prompt_token_ids = {};  // what engines are sent in place of the prompt's; empty: none
};

// One sampled completion; the four vectors have an element a token.
struct Rollout {
  std::vector<std::int64_t> token_ids;
  std::vector<float> log_probs;         // of each token, by the engine that sampled it
  std::vector<std::uint64_t> epochs;    // of the sender of the weights that made each token
  std::vector<std::uint64_t> versions;  // of these weights
  std::string finish_reason;            // "stop", "length" or, of an engine that was told so, "abort"
  std::string text;
  double reward = 0;
  double penalty = 0;  // that its length takes from the reward (overlong.h)
  double advantage = 0;

  double score() const { return reward - penalty; }
};

// A completion group: the completions of one prompt.
struct CompletionGroup {
  const Problem* problem = nullptr;
  std::vector<std::int64_t> prompt;  // token ids
  std::vector<Rollout> rollouts;
};

}  // namespace bascule::ref
