#include <bascule/trainer_ref/model/decoder.h>

#include <algorithm>
#include <numbers>

#include "absl/strings/str_join.h"
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

// hidden [..., C] times rsqrt of its mean square, times weight [C]; the statistics in float32.
at::Tensor rms_norm(const at::Tensor& hidden, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = hidden.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return weight * (wide * scale).to(hidden.scalar_type());
}

// x [N, heads, D] rotated in pairs (i, i + D/2), the order of Hugging Face's weights.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return x * cos + turned * sin;
}

// theta^(-2i/D) for i < D/2, with Llama 3's scaling: long waves are stretched by `factor`, short ones stay,
// those between blend (as modeling_rope_utils of transformers computes it, in float32).
at::Tensor inverse_frequencies(const ModelConfig& config) {
  const auto width = static_cast<double>(config.head_dim);
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::kLong).to(at::kFloat) / width;
  const at::Tensor plain = at::reciprocal(at::pow(config.rope_theta, exponents));
  if (!config.rope_scaling) return plain;
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

at::Tensor CausalAttention::attend(std::int64_t /*layer*/, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value) {
  const auto by_row = [&](const at::Tensor& x) {  // [B*T, heads, D] → [B, heads, T, D]
    return x.view({rows_, tokens_, x.size(1), x.size(2)}).transpose(1, 2);
  };
  const bool grouped = query.size(1) != key.size(1);
  const at::Tensor mixed = at::scaled_dot_product_attention(by_row(query), by_row(key), by_row(value), {},
                                                            /*dropout_p=*/0.0, /*is_causal=*/true, {}, grouped);
  return mixed.transpose(1, 2).reshape(query.sizes());
}

at::Tensor Decoder::Linear::operator()(const at::Tensor& input) const { return at::linear(input, weight, bias); }

absl::StatusOr<Decoder> Decoder::bind(const ModelConfig& config, const WeightMap& weights) {
  BASCULE_TRY(check_weights(config, weights));
  const auto tensor = [&](const std::string& name) {
    const auto found = weights.find(name);
    return found == weights.end() ? at::Tensor() : found->second;
  };
  const auto linear = [&](const std::string& name) {
    return Linear{.weight = tensor(name + ".weight"), .bias = tensor(name + ".bias")};
  };
  Decoder decoder;
  decoder.config_ = config;
  decoder.embedding_ = tensor("model.embed_tokens.weight");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = cat("model.layers.", i, ".");
    decoder.layers_.push_back({.input_norm = tensor(layer + "input_layernorm.weight"),
                               .post_attention_norm = tensor(layer + "post_attention_layernorm.weight"),
                               .query = linear(layer + "self_attn.q_proj"),
                               .key = linear(layer + "self_attn.k_proj"),
                               .value = linear(layer + "self_attn.v_proj"),
                               .output = linear(layer + "self_attn.o_proj"),
                               .query_norm = tensor(layer + "self_attn.q_norm.weight"),
                               .key_norm = tensor(layer + "self_attn.k_norm.weight"),
                               .gate = linear(layer + "mlp.gate_proj"),
                               .up = linear(layer + "mlp.up_proj"),
                               .down = linear(layer + "mlp.down_proj")});
  }
  decoder.norm_ = tensor("model.norm.weight");
  decoder.head_ = config.tie_word_embeddings ? decoder.embedding_ : tensor("lm_head.weight");
  decoder.inverse_frequencies_ = inverse_frequencies(config).to(decoder.embedding_.device());
  return decoder;
}

// Computed for the positions at hand, once for all layers: no table whose size would follow the longest
// context.
Decoder::Rotation Decoder::rotation_at(const at::Tensor& positions) const {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * inverse_frequencies_;  // [N, D/2]
  const at::Tensor both = at::cat({angles, angles}, -1).unsqueeze(1);                      // [N, 1, D]
  const at::ScalarType type = embedding_.scalar_type();
  return {.cos = both.cos().to(type), .sin = both.sin().to(type)};
}

at::Tensor Decoder::attention_block(std::int64_t index, const at::Tensor& hidden, const Rotation& rotation,
                                    Attention& attention) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t tokens = hidden.size(0);
  at::Tensor query = layer.query(hidden).view({tokens, config_.num_attention_heads, config_.head_dim});
  at::Tensor key = layer.key(hidden).view({tokens, config_.num_key_value_heads, config_.head_dim});
  const at::Tensor value = layer.value(hidden).view({tokens, config_.num_key_value_heads, config_.head_dim});
  if (config_.query_key_norm) {
    query = rms_norm(query, layer.query_norm, config_.rms_norm_eps);
    key = rms_norm(key, layer.key_norm, config_.rms_norm_eps);
  }
  query = rotate(query, rotation.cos, rotation.sin);
  key = rotate(key, rotation.cos, rotation.sin);
  return layer.output(attention.attend(index, query, key, value).flatten(1));
}

at::Tensor Decoder::mlp_block(const Layer& layer, const at::Tensor& hidden) const {
  return layer.down(at::silu(layer.gate(hidden)) * layer.up(hidden));
}

at::Tensor Decoder::forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const {
  const Rotation rotation = rotation_at(positions);
  at::Tensor hidden = at::embedding(embedding_, token_ids);
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    hidden = hidden + attention_block(i, rms_norm(hidden, layer.input_norm, config_.rms_norm_eps), rotation, attention);
    hidden = hidden + mlp_block(layer, rms_norm(hidden, layer.post_attention_norm, config_.rms_norm_eps));
  }
  return rms_norm(hidden, norm_, config_.rms_norm_eps);
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const { return at::linear(hidden, head_).to(at::kFloat); }

}  // namespace bascule::ref
