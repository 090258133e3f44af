// A decoder-only transformer in LibTorch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
//
// A Decoder owns no weights: it is bound to tensors by Hugging Face's names, which may be a trainer's leaf parameters
// (gradients flow) or an engine's views into a slot (binding again after a flip copies nothing).
//
// Shapes: N tokens in one flat batch, C channels, H heads, G key/value heads, D head width, L layers, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer_ref/model/config.h"
#include "transport/tensor.h"

namespace bascule::ref {

using Weights = std::map<std::string, at::Tensor, std::less<>>;  // Hugging Face's names; tied weights stand once

// Attention over one flat batch, as its caller lays out sequences: a padded batch in training, a cache in an engine.
class Attention {
 public:
  virtual ~Attention() = default;
  // query [N, H, D], key and value [N, G, D], rotated already → [N, H, D]. Called once a layer, in order.
  virtual at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) = 0;
};

// Causal attention within each row of a batch of B rows of T tokens, flattened to N = B * T. Rows are padded at the
// right: nothing attends to what follows it.
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
  // Binds `weights`; errors name the first tensor that is missing, surplus or of another shape, and count the rest.
  static absl::StatusOr<Decoder> bind(const ModelConfig& config, const Weights& weights);

  // token_ids, positions: int64 [N] → hidden states after the last norm, [N, C]
  at::Tensor forward(const at::Tensor& token_ids, const at::Tensor& positions, Attention& attention) const;

  // hidden [N, C] → logits [N, V] in float32
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  Decoder() = default;
};

// Name, dtype and shape of every tensor of a checkpoint of this configuration, in the order of the layers.
std::vector<TensorSpec> weight_specs(const ModelConfig& config, DType dtype);

}  // namespace bascule::ref
