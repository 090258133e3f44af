// A decoder-only transformer in LibTorch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
//
// A Decoder owns no weights: it is bound to tensors by Hugging Face's names, which may be a trainer's leaf
// parameters (gradients flow) or an engine's views into a slot (binding again after a flip copies nothing).
//
// Threads: const members may be called from several threads. LibTorch's own exceptions (a token id beyond the
// vocabulary, no memory) pass through forward() and logits().
//
// Shapes: N tokens in one flat batch, C channels, H heads, G key/value heads, D head width, I inner width of
// the MLP, L layers, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

// By Hugging Face's names, all of one dtype; tied weights stand once, under the embedding's name.
using WeightMap = std::map<std::string, at::Tensor, std::less<>>;

// Name, dtype and shape of every tensor of a checkpoint of this configuration, in the order of the layers.
std::vector<TensorSpec> weight_specs(const ModelConfig& config, DType dtype);

// INVALID_ARGUMENT names the first tensor that is missing, surplus, or of another shape or dtype, and counts
// the rest.
absl::Status check_weights(const ModelConfig& config, const WeightMap& weights);

// Attention over one flat batch, as its caller lays out sequences: a padded batch in training, a cache in an
// engine.
class Attention {
 public:
  virtual ~Attention() = default;
  // query [N, H, D], key and value [N, G, D], rotated already → [N, H, D]. Called once a layer, in order.
  virtual at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) = 0;
};

// Causal attention within each row of a batch of B rows of T tokens, flattened to N = B * T. Rows are padded
// at the right: nothing attends to what follows it.
class CausalAttention final : public Attention {
 public:
  CausalAttention(std::int64_t rows, std::int64_t tokens_per_row) : rows_(rows), tokens_(tokens_per_row) {}
  at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value) override;

 private:
  std::int64_t rows_, tokens_;
};

class Decoder {
 public:
  // Binds `weights`, all F32 or all BF16; errors as check_weights().
  static absl::StatusOr<Decoder> bind(const ModelConfig& config, const WeightMap& weights);

  // token_ids, positions: int64 [N] → hidden states after the last norm, [N, C] in the weights' dtype
  at::Tensor forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const;

  // hidden [N, C] → logits [N, V] in float32
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  struct Linear {
    at::Tensor weight;  // [out, in]
    at::Tensor bias;    // [out], or undefined
    at::Tensor operator()(const at::Tensor& input) const;
  };
  struct Layer {
    at::Tensor input_norm, post_attention_norm;  // [C]
    Linear query, key, value, output;            // C → H*D, G*D, G*D; H*D → C
    at::Tensor query_norm, key_norm;             // [D], or undefined
    Linear gate, up, down;                       // C → I, C → I, I → C
  };
  struct Rotation {
    at::Tensor cos, sin;  // [N, 1, D], in the weights' dtype
  };

  Decoder() = default;
  Rotation rotation_at(const at::Tensor& positions) const;
  at::Tensor attention_block(std::int64_t layer, const at::Tensor& hidden, const Rotation& rotation,
                             Attention& attention) const;
  at::Tensor mlp_block(const Layer& layer, const at::Tensor& hidden) const;

  ModelConfig config_;
  at::Tensor embedding_;            // [V, C]
  std::vector<Layer> layers_;       // L
  at::Tensor norm_;                 // [C]
  at::Tensor head_;                 // [V, C]; the embedding itself where they are tied
  at::Tensor inverse_frequencies_;  // [D / 2], float32: radians a position
};

}  // namespace bascule::ref
