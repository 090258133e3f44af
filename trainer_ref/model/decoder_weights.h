// A decoder's tensors, by their function instead of their names in a checkpoint.
//
// Shapes: C channels, H heads, G key/value heads, D head width, I inner width of the MLP, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

// By Hugging Face's names, all of one dtype; tied weights are there once, under the embedding's name.
using WeightMap = std::map<std::string, at::Tensor, std::less<>>;

// Name, dtype and shape of every tensor of a checkpoint of this configuration, in the order of the layers.
std::vector<TensorSpec> weight_specs(const ModelConfig& config, DType dtype);

// INVALID_ARGUMENT names the first tensor that is missing, surplus, or of another shape or dtype, and counts the rest.
absl::Status check_weights(const ModelConfig& config, const WeightMap& weights);

// Tensors of a checkpoint that one matrix product takes together, joined along their first dimension: queries, keys and
// values; gate and up. Names are vLLM's: "…self_attn.qkv_proj.weight", "…mlp.gate_up_proj.weight", and their biases.
struct JoinedWeights {
  std::string name;
  std::vector<std::string> parts;
};
std::vector<JoinedWeights> joined_weights(const ModelConfig& config);

// The factors of a low-rank update of a Linear (adapter.h).
struct LowRank {
  at::Tensor a;  // [rank, in]
  at::Tensor b;  // [out, rank]
  double scale = 1;
  double dropout = 0;    // the share of its input that is left out, in training alone
  at::Tensor rows = {};  // int64 [n]: the rows of a batch that it is for; undefined: all. Without gradients
};

// Casts its weights to the type of its input, so that a trainer's f32 weights can multiply bfloat16 activations.
// Gradients flow back through the cast. An adapter's factors are cast in the same way, as PEFT does under autocast, and
// scale · B (A x) is added in one operation, which rounds once.
struct Linear {
  at::Tensor weight;                                      // [out, in]
  at::Tensor bias;                                        // [out], or undefined
  std::vector<LowRank> adapters = {};                     // a trainer has one; a step, one for each adapter of its rows
  at::Tensor operator()(const at::Tensor& input) const {  // [N, in] → [N, out]
    const at::ScalarType type = input.scalar_type();
    at::Tensor output = at::linear(input, weight.to(type), bias.defined() ? bias.to(type) : bias);
    for (const LowRank& adapter : adapters) {
      const at::Tensor own = adapter.rows.defined() ? input.index_select(0, adapter.rows) : input;
      const at::Tensor kept = adapter.dropout > 0 ? at::dropout(own, adapter.dropout, /*train=*/true) : own;
      const at::Tensor low = at::linear(kept, adapter.a.to(type)),
                       b = adapter.b.to(type).t();  // [n, rank], [rank, out]
      if (adapter.rows.defined()) {
        const at::Tensor base = output.index_select(0, adapter.rows);
        output.index_copy_(0, adapter.rows, at::addmm(base, low, b, /*beta=*/1, adapter.scale));
      } else {
        output = at::addmm(output, low, b, /*beta=*/1, adapter.scale);
      }
    }
    return output;
  }
};

struct DecoderLayer {
  at::Tensor input_norm, post_attention_norm;  // [C]
  Linear query, key, value, output;            // C → H*D, G*D, G*D; H*D → C
  at::Tensor query_norm, key_norm;             // [D], or undefined
  Linear gate, up, down;                       // C → I, C → I, I → C
  Linear query_key_value, gate_up;             // joined, or undefined
};

struct DecoderWeights {
  ModelConfig config;
  at::Tensor embedding;  // [V, C]
  std::vector<DecoderLayer> layers;
  at::Tensor norm;                 // [C]
  at::Tensor head;                 // [V, C]; the embedding itself if they are tied
  at::Tensor inverse_frequencies;  // [D / 2], float32: radians per position

  // Errors are as in check_weights(). `joined` has joined tensors by their names: all of joined_weights(), or none.
  static absl::StatusOr<DecoderWeights> bind(const ModelConfig& config, const WeightMap& weights,
                                             const WeightMap& joined = {});
  // Adds updates to linear modules by their names, "model.layers.0.self_attn.q_proj", for all rows or for `rows`.
  // Joined weights stay as they are.
  void adapt(const std::map<std::string, LowRank, std::less<>>& modules, const at::Tensor& rows = {});
};

}  // namespace bascule::ref
