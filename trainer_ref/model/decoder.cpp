#include <bascule/trainer_ref/model/decoder.h>

#include <vector>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// x [N, heads, D] rotated in pairs (i, i + D/2), the order of Hugging Face's weights.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return x * cos + turned * sin;
}

}  // namespace

absl::StatusOr<Decoder> Decoder::bind(const ModelConfig& config, const WeightMap& weights, Norms norms) {
  BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, weights));
  return Decoder(std::move(bound), norms);
}

// hidden [..., C] times rsqrt of its mean square, times weight [C]; the statistics in float32.
at::Tensor Decoder::rms_norm(const at::Tensor& hidden, const at::Tensor& weight) const {
  const double epsilon = weights_.config.rms_norm_eps;
  const at::Tensor factors = weight.to(hidden.scalar_type());
  if (norms_ == Norms::kFused) return at::rms_norm(hidden, weight.sizes(), factors, epsilon);
  const at::Tensor wide = hidden.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return factors * (wide * scale).to(hidden.scalar_type());
}

at::Tensor Decoder::embed(const at::Tensor& token_ids) const { return at::embedding(weights_.embedding, token_ids); }

at::Tensor Decoder::last_norm(const at::Tensor& hidden) const { return rms_norm(hidden, weights_.norm); }

// Computed for the given positions, once for all layers, so that no table grows with the longest context.
Decoder::Rotation Decoder::rotation_at(const at::Tensor& positions, at::ScalarType type) const {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * weights_.inverse_frequencies;  // [N, D/2]
  const at::Tensor both = at::cat({angles, angles}, -1).unsqueeze(1);                              // [N, 1, D]
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
    query = rms_norm(query, layer.query_norm);
    key = rms_norm(key, layer.key_norm);
  }
  query = rotate(query, rotation.cos, rotation.sin);
  key = rotate(key, rotation.cos, rotation.sin);
  return layer.output(attention.attend(index, query, key, value).flatten(1));
}

at::Tensor Decoder::mlp_block(const DecoderLayer& layer, const at::Tensor& hidden) const {
  return layer.down(at::silu(layer.gate(hidden)) * layer.up(hidden));
}

at::Tensor Decoder::layer(std::int64_t index, const at::Tensor& hidden, const Rotation& rotation,
                          Attention& attention) const {
  const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const at::Tensor attended = hidden + attention_block(index, rms_norm(hidden, layer.input_norm), rotation, attention);
  return attended + mlp_block(layer, rms_norm(attended, layer.post_attention_norm));
}

at::Tensor Decoder::forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const {
  at::Tensor hidden = embed(token_ids);
  const Rotation rotation = rotation_at(positions, hidden.scalar_type());
  for (std::int64_t i = 0; i < weights_.config.num_hidden_layers; ++i) hidden = layer(i, hidden, rotation, attention);
  return last_norm(hidden);
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const { return at::linear(hidden, weights_.head).to(at::kFloat); }

}  // namespace bascule::ref
