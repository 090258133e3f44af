#include <bascule/trainer_ref/model/decoder.h>

#include <vector>

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

}  // namespace

absl::StatusOr<Decoder> Decoder::bind(const ModelConfig& config, const WeightMap& weights) {
  BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, weights));
  return Decoder(std::move(bound));
}

// Computed for the positions at hand, once for all layers: no table whose size would follow the longest
// context.
Decoder::Rotation Decoder::rotation_at(const at::Tensor& positions) const {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * weights_.inverse_frequencies;  // [N, D/2]
  const at::Tensor both = at::cat({angles, angles}, -1).unsqueeze(1);                              // [N, 1, D]
  const at::ScalarType type = weights_.embedding.scalar_type();
  return {.cos = both.cos().to(type), .sin = both.sin().to(type)};
}

at::Tensor Decoder::attention_block(std::int64_t index, const at::Tensor& hidden, const Rotation& rotation,
                                    Attention& attention) const {
  const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const std::int64_t tokens = hidden.size(0);
  at::Tensor query = layer.query(hidden).view({tokens, weights_.config.num_attention_heads, weights_.config.head_dim});
  at::Tensor key = layer.key(hidden).view({tokens, weights_.config.num_key_value_heads, weights_.config.head_dim});
  const at::Tensor value =
      layer.value(hidden).view({tokens, weights_.config.num_key_value_heads, weights_.config.head_dim});
  if (weights_.config.query_key_norm) {
    query = rms_norm(query, layer.query_norm, weights_.config.rms_norm_eps);
    key = rms_norm(key, layer.key_norm, weights_.config.rms_norm_eps);
  }
  query = rotate(query, rotation.cos, rotation.sin);
  key = rotate(key, rotation.cos, rotation.sin);
  return layer.output(attention.attend(index, query, key, value).flatten(1));
}

at::Tensor Decoder::mlp_block(const DecoderLayer& layer, const at::Tensor& hidden) const {
  return layer.down(at::silu(layer.gate(hidden)) * layer.up(hidden));
}

at::Tensor Decoder::forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const {
  const Rotation rotation = rotation_at(positions);
  at::Tensor hidden = at::embedding(weights_.embedding, token_ids);
  for (std::int64_t i = 0; i < weights_.config.num_hidden_layers; ++i) {
    const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
    hidden = hidden +
             attention_block(i, rms_norm(hidden, layer.input_norm, weights_.config.rms_norm_eps), rotation, attention);
    hidden = hidden + mlp_block(layer, rms_norm(hidden, layer.post_attention_norm, weights_.config.rms_norm_eps));
  }
  return rms_norm(hidden, weights_.norm, weights_.config.rms_norm_eps);
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const { return at::linear(hidden, weights_.head).to(at::kFloat); }

}  // namespace bascule::ref
