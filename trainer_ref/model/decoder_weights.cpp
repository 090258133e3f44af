#include <bascule/trainer_ref/model/decoder_weights.h>

#include <algorithm>
#include <numbers>

#include "absl/strings/str_join.h"
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// theta^(-2i/D) for i < D/2, divided by the factor of a linear rope; or with Llama 3's scaling: long waves are
// stretched by `factor`, short ones stay, those between blend (as modeling_rope_utils of transformers computes it, in
// float32).
at::Tensor radians_per_position(const ModelConfig& config) {
  const auto width = static_cast<double>(config.head_dim);
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::kLong).to(at::kFloat) / width;
  const at::Tensor plain = at::reciprocal(at::pow(config.rope_theta, exponents));
  if (!config.rope_scaling) return plain / config.rope_factor;
  const Llama3RopeScaling& scaling = *config.rope_scaling;
  const auto context = static_cast<double>(scaling.original_max_position_embeddings);
  const at::Tensor wavelength = 2 * std::numbers::pi / plain;
  const at::Tensor stretched = plain / scaling.factor;
  const at::Tensor blend =
      (context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor blended = (1 - blend) * stretched + blend * plain;
  const at::Tensor long_or_blended = at::where(wavelength > context / scaling.low_freq_factor, stretched, blended);
  return at::where(wavelength < context / scaling.high_freq_factor, plain, long_or_blended);
}

}  // namespace

std::vector<TensorSpec> weight_specs(const ModelConfig& config, DType dtype) {
  const std::int64_t channels = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t query = config.num_attention_heads * config.head_dim;
  const std::int64_t key = config.num_key_value_heads * config.head_dim;
  std::vector<TensorSpec> specs;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    specs.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
  };
  const auto add_linear = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  };

  add("model.embed_tokens.weight", {config.vocab_size, channels});
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = cat("model.layers.", i, ".");
    add(layer + "input_layernorm.weight", {channels});
    add_linear(layer + "self_attn.q_proj", query, channels, config.attention_bias);
    add_linear(layer + "self_attn.k_proj", key, channels, config.attention_bias);
    add_linear(layer + "self_attn.v_proj", key, channels, config.attention_bias);
    add_linear(layer + "self_attn.o_proj", channels, query, config.output_bias);
    if (config.query_key_norm) {
      add(layer + "self_attn.q_norm.weight", {config.head_dim});
      add(layer + "self_attn.k_norm.weight", {config.head_dim});
    }
    add(layer + "post_attention_layernorm.weight", {channels});
    add_linear(layer + "mlp.gate_proj", inner, channels, config.mlp_bias);
    add_linear(layer + "mlp.up_proj", inner, channels, config.mlp_bias);
    add_linear(layer + "mlp.down_proj", channels, inner, config.mlp_bias);
  }
  add("model.norm.weight", {channels});
  if (!config.tie_word_embeddings) add("lm_head.weight", {config.vocab_size, channels});
  return specs;
}

absl::Status check_weights(const ModelConfig& config, const WeightMap& weights) {
  const auto embedding = weights.find("model.embed_tokens.weight");
  const at::ScalarType type = embedding == weights.end() ? at::kFloat : embedding->second.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) {
    return invalid_argument("weights of dtype ", c10::toString(type), ": the decoder computes in float32 or bfloat16");
  }
  const std::vector<TensorSpec> specs = weight_specs(config, type == at::kFloat ? DType::kF32 : DType::kBF16);
  std::string first;
  std::size_t wrong = 0, present = 0;
  const auto note = [&](const std::string& what) {
    if (wrong++ == 0) first = what;
  };
  for (const TensorSpec& spec : specs) {
    const auto found = weights.find(spec.name);
    if (found == weights.end()) {
      note(cat(spec.name, " is missing"));
      continue;
    }
    ++present;
    if (found->second.sizes() != at::IntArrayRef(spec.shape)) {
      note(cat(spec.name, ": expected shape [", absl::StrJoin(spec.shape, ", "), "], found [",
               absl::StrJoin(found->second.sizes(), ", "), "]"));
    } else if (found->second.scalar_type() != type) {
      note(cat(spec.name, ": expected dtype ", c10::toString(type), " as the embedding has, found ",
               c10::toString(found->second.scalar_type())));
    }
  }
  if (present < weights.size()) {
    for (const auto& [name, tensor] : weights) {
      const bool known = std::any_of(specs.begin(), specs.end(), [&](const TensorSpec& s) { return s.name == name; });
      if (!known) note(cat(name, " is surplus: the configuration has no such tensor"));
    }
  }
  if (wrong == 0) return absl::OkStatus();
  return invalid_argument("weights do not fit the configuration: ", first,
                          wrong > 1 ? cat(" (and ", wrong - 1, " more)") : "");
}

std::vector<JoinedWeights> joined_weights(const ModelConfig& config) {
  std::vector<JoinedWeights> joined;
  const auto add = [&](const std::string& block, const std::string& name, std::vector<std::string> parts, bool bias) {
    for (const char* kind : {".weight", ".bias"}) {
      JoinedWeights one{.name = cat(block, name, kind), .parts = {}};
      for (const std::string& part : parts) one.parts.push_back(cat(block, part, kind));
      joined.push_back(std::move(one));
      if (!bias) break;
    }
  };
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    add(cat("model.layers.", i, ".self_attn."), "qkv_proj", {"q_proj", "k_proj", "v_proj"}, config.attention_bias);
    add(cat("model.layers.", i, ".mlp."), "gate_up_proj", {"gate_proj", "up_proj"}, config.mlp_bias);
  }
  return joined;
}

absl::StatusOr<DecoderWeights> DecoderWeights::bind(const ModelConfig& config, const WeightMap& weights,
                                                    const WeightMap& joined) {
  BASCULE_TRY(check_weights(config, weights));
  const auto tensor = [](const WeightMap& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? at::Tensor() : found->second;
  };
  const auto linear = [&](const WeightMap& map, const std::string& name) {
    return Linear{.weight = tensor(map, name + ".weight"), .bias = tensor(map, name + ".bias")};
  };
  DecoderWeights bound;
  bound.config = config;
  bound.embedding = tensor(weights, "model.embed_tokens.weight");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = cat("model.layers.", i, ".");
    bound.layers.push_back({.input_norm = tensor(weights, layer + "input_layernorm.weight"),
                            .post_attention_norm = tensor(weights, layer + "post_attention_layernorm.weight"),
                            .query = linear(weights, layer + "self_attn.q_proj"),
                            .key = linear(weights, layer + "self_attn.k_proj"),
                            .value = linear(weights, layer + "self_attn.v_proj"),
                            .output = linear(weights, layer + "self_attn.o_proj"),
                            .query_norm = tensor(weights, layer + "self_attn.q_norm.weight"),
                            .key_norm = tensor(weights, layer + "self_attn.k_norm.weight"),
                            .gate = linear(weights, layer + "mlp.gate_proj"),
                            .up = linear(weights, layer + "mlp.up_proj"),
                            .down = linear(weights, layer + "mlp.down_proj"),
                            .query_key_value = linear(joined, layer + "self_attn.qkv_proj"),
                            .gate_up = linear(joined, layer + "mlp.gate_up_proj")});
  }
  bound.norm = tensor(weights, "model.norm.weight");
  bound.head = config.tie_word_embeddings ? bound.embedding : tensor(weights, "lm_head.weight");
  bound.inverse_frequencies = radians_per_position(config).to(bound.embedding.device());
  return bound;
}

void DecoderWeights::adapt(const std::map<std::string, LowRank, std::less<>>& modules, const at::Tensor& rows) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    DecoderLayer& layer = layers[i];
    const std::string name = cat("model.layers.", i, ".");
    for (const auto& [part, linear] : {std::pair("self_attn.q_proj", &layer.query),
                                       {"self_attn.k_proj", &layer.key},
                                       {"self_attn.v_proj", &layer.value},
                                       {"self_attn.o_proj", &layer.output},
                                       {"mlp.gate_proj", &layer.gate},
                                       {"mlp.up_proj", &layer.up},
                                       {"mlp.down_proj", &layer.down}})
      if (const auto found = modules.find(name + part); found != modules.end())
        linear->adapters.emplace_back(found->second).rows = rows;
  }
}

}  // namespace bascule::ref
