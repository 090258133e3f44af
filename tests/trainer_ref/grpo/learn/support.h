// A small policy, completions to train it on, and a folder to save it in.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/learn/run_state.h>
#include <bascule/trainer_ref/grpo/learn/supervised.h>
#include <bascule/trainer_ref/grpo/learn/update.h>

namespace bascule::ref {

inline ModelConfig tiny() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 11;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 8;
  config.max_position_embeddings = 32;
  config.eos_token_ids = {10};
  return config;
}
inline Policy policy(at::Device device = at::kCPU) { return *random_policy(tiny(), 3, device); }

// Two groups of prompts and completions of different lengths.
struct Sampled {
  std::vector<std::vector<std::int64_t>> prompts{{1, 2, 3}, {4}};
  std::vector<Rollout> rollouts{rollout({5, 6}, 1), rollout({7, 8, 9, 10}, -0.5), rollout({2}, 0.25),
                                rollout({3, 10}, -1)};
  std::vector<TrainingRow> rows() const {
    return {{&prompts[0], &rollouts[0]},
            {&prompts[0], &rollouts[1]},
            {&prompts[1], &rollouts[2]},
            {&prompts[1], &rollouts[3]}};
  }
  static Rollout rollout(std::vector<std::int64_t> token_ids, double advantage) {
    Rollout result;
    result.log_probs.assign(token_ids.size(), -2.4f);
    result.token_ids = std::move(token_ids);
    result.advantage = advantage;
    return result;
  }
};

// The largest difference of two weights.
inline double distance(const Policy& a, const Policy& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a.weights())
    largest = std::max(largest, (tensor.detach() - b.weights().at(name).detach()).abs().max().item<double>());
  return largest;
}

// A folder for checkpoints, with the configuration that they need.
class Saved : public ::testing::Test {
 protected:
  Saved() {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(std::filesystem::path(BASCULE_DEMO_MODEL) / "config.json", folder_ / "config.json");
  }
  ~Saved() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("saved_" + std::to_string(::getpid()));
};

}  // namespace bascule::ref
