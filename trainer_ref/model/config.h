// A decoder's Hugging Face config.json, for the supported families.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct Llama3RopeScaling {  // rope_type "llama3"
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  std::string architecture;      // "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
  std::int64_t vocab_size = 0;   // V
  std::int64_t hidden_size = 0;  // C
  std::int64_t intermediate_size = 0;    // I
  std::int64_t num_hidden_layers = 0;    // L
  std::int64_t num_attention_heads = 0;  // H
  std::int64_t num_key_value_heads = 0;  // G, divides H
  std::int64_t head_dim = 0;             // D
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double rope_factor = 1;  // rope_type "linear": positions are divided by it
  std::optional<Llama3RopeScaling> rope_scaling;
  bool attention_bias = false;  // q, k, v have biases (Qwen2, or Llama's attention_bias)
  bool output_bias = false;     // o_proj also has one (Llama's attention_bias)
  bool mlp_bias = false;
  bool query_key_norm = false;  // Qwen3: RMSNorm over each head of q and k
  bool tie_word_embeddings = false;
  // Of generation_config.json, else of config.json, else the class's default; and the tokenizer's.
  std::vector<std::int64_t> eos_token_ids;
  std::optional<std::int64_t> tokenizer_end;  // one of them: the tokenizer's eos_token

  // The token that ends an answer to learn from. eos_token_ids must not be empty.
  std::int64_t answer_end() const { return tokenizer_end.value_or(eos_token_ids.front()); }
};

// Reads `folder`/config.json. An error names the key. It reports an unsupported architecture, rope scaling, sliding
// window in use, image tower or encoder; a missing or ill-typed key; or a folder that does not exist (for a hub name,
// it says how to download it).
absl::StatusOr<ModelConfig> read_config(const std::filesystem::path& folder);

// If eos_token_ids is empty, the trainer and the engine warn with this text and what follows from it.
inline constexpr std::string_view kNoEndToken =
    "no token ends a text: config.json and generation_config.json have no eos_token_id, and the tokenizer has no "
    "eos_token";

// The trainer and the engine end their errors about --model with this text.
inline constexpr std::string_view kModelAdvice = "give the folder of a checkpoint, as --model=trainer_ref/demo";

}  // namespace bascule::ref
