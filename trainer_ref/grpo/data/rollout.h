// The plain records of the training loop: a problem, the engines' completions, and their rewards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace bascule::ref {

struct Problem {
  std::string prompt = {};  // text; empty: it has only messages or token ids
  std::string answer = {};
  nlohmann::json columns = nlohmann::json::object();  // the other columns of its line, for reward functions
  nlohmann::ordered_json messages = nullptr;  // [{"role": …, "content": …}, …] for a chat template; null: none
  std::vector<std::int64_t> prompt_token_ids = {};  // sent instead of the encoded prompt; empty: none
};

// One sampled completion; the vectors have one element per token.
struct Rollout {
  std::vector<std::int64_t> token_ids = {};
  std::vector<float> log_probs = {};         // of each token, by the engine that sampled it
  std::vector<std::uint64_t> epochs = {};    // for each token, the epoch of the sender whose weights sampled it
  std::vector<std::uint64_t> versions = {};  // and the version of these weights
  std::vector<bool> learned = {};  // false: not the model's own, such as a tool's answer; empty: all are learned
  std::string finish_reason = {};  // "stop", "length" or, from an engine that was told to abort, "abort"
  std::string text = {};
  std::optional<double> reward = {};         // nullopt: it is unscored, since no reward applies to it
  double penalty = 0;                        // subtracted from the reward for its length (overlong.h)
  std::optional<double> advantage = {};      // nullopt: it takes no part in the loss
  std::optional<double> set_advantage = {};  // by its environment, in place of the comparison with its group

  bool is_learned(std::size_t token) const { return learned.empty() || learned[token]; }
  std::int64_t learned_tokens() const {
    return learned.empty() ? std::ssize(token_ids) : std::count(learned.begin(), learned.end(), true);
  }
  std::optional<double> score() const { return reward ? std::optional(*reward - penalty) : std::nullopt; }
};

// A completion group: the completions of one prompt.
struct CompletionGroup {
  const Problem* problem = nullptr;
  std::vector<std::int64_t> prompt;  // token ids
  std::vector<Rollout> rollouts;
};

}  // namespace bascule::ref
