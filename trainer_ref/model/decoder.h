// A decoder-only transformer in LibTorch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
//
// A Decoder owns no weights: it is bound to tensors by Hugging Face's names, which may be a trainer's leaf
// parameters (gradients flow) or an engine's views into a slot (binding again after a flip copies nothing).
// forward() is embed(), every layer(), and last_norm(). A trainer calls these itself, since it recomputes layers in the
// backward pass and computes in another type than its weights have.
//
// Threads: const members may be called from several threads. LibTorch's own exceptions (a token id beyond the
// vocabulary, no memory) pass through.
//
// Shapes: N tokens in one flat batch, C channels, H heads, G key/value heads, D head width, I inner width of
// the MLP, L layers, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/decoder_weights.h>

namespace bascule::ref {

// Attention over one flat batch, as its caller lays out sequences: packed rows in training (causal_attention.h), a
// cache in an engine.
class Attention {
 public:
  virtual ~Attention() = default;
  // query [N, H, D], key and value [N, G, D], already rotated → [N, H, D]. Called once per layer, in order.
  virtual at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) = 0;
};

// How norms are computed.
enum class Norms {
  kStepwise,  // in steps, as Hugging Face's models: scaled, rounded to the weights' type, then weighted
  kFused,     // as one operation, forward and backward, which rounds once
};

class Decoder {
 public:
  struct Rotation {
    at::Tensor cos, sin;  // [N, 1, D], in the type of the hidden states
  };

  // Binds `weights`, all F32 or all BF16. Errors are as in check_weights().
  static absl::StatusOr<Decoder> bind(const ModelConfig& config, const WeightMap& weights,
                                      Norms norms = Norms::kStepwise);
  explicit Decoder(DecoderWeights weights, Norms norms = Norms::kStepwise)
      : weights_(std::move(weights)), norms_(norms) {}

  // token_ids, positions: int64 [N] → hidden states after the last norm, [N, C] in the weights' dtype
  at::Tensor forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const;

  // hidden [N, C] → logits [N, V] in float32
  at::Tensor logits(const at::Tensor& hidden) const;

  // The parts of forward(). They compute in the type of their hidden states [N, C], which may differ from the weights'.
  at::Tensor embed(const at::Tensor& token_ids) const;  // in the weights' type
  Rotation rotation_at(const at::Tensor& positions, at::ScalarType type) const;
  at::Tensor layer(std::int64_t layer, const at::Tensor& hidden, const Rotation& rotation, Attention& attention) const;
  at::Tensor last_norm(const at::Tensor& hidden) const;

  const DecoderWeights& weights() const { return weights_; }
  Norms norms() const { return norms_; }

 private:
  at::Tensor rms_norm(const at::Tensor& hidden, const at::Tensor& weight) const;
  at::Tensor attention_block(std::int64_t layer, const at::Tensor& hidden, const Rotation& rotation,
                             Attention& attention) const;
  at::Tensor mlp_block(const DecoderLayer& layer, const at::Tensor& hidden) const;

  DecoderWeights weights_;
  Norms norms_;
};

}  // namespace bascule::ref
