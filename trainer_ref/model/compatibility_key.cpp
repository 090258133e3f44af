#include <bascule/trainer_ref/model/compatibility_key.h>

#include <nlohmann/json.hpp>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

std::string compatibility_key_of(const ModelConfig& config, std::string_view tokenizer) {
  nlohmann::json all{config.architecture,        config.vocab_size,        config.hidden_size,
                     config.intermediate_size,   config.num_hidden_layers, config.num_attention_heads,
                     config.num_key_value_heads, config.head_dim,          config.max_position_embeddings,
                     config.rms_norm_eps,        config.rope_theta,        config.attention_bias,
                     config.output_bias,         config.mlp_bias,          config.query_key_norm,
                     config.tie_word_embeddings, config.eos_token_ids};
  if (const auto& scaling = config.rope_scaling)
    all.push_back({scaling->factor, scaling->low_freq_factor, scaling->high_freq_factor,
                   scaling->original_max_position_embeddings});
  if (config.rope_factor != 1) all.push_back({config.rope_factor});
  const std::string text = all.dump();
  kernels::PieceDigest digest;
  digest.add(0, std::as_bytes(std::span(text)));
  return cat("config ", to_hex(digest.finish(text.size())), ", tokenizer ", tokenizer);
}

}  // namespace bascule::ref
