// The model as its trainer sees it: parameters, and the log-probabilities that it gives to completions. Either all its
// weights are trained, or an adapter over frozen weights (model/adapter.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/batch.h>
#include <bascule/trainer_ref/model/adapter.h>
#include <bascule/trainer_ref/model/decoder.h>
#include <bascule/trainer_ref/model/token_log_probs.h>

namespace bascule::ref {

// How a policy computes; independent of its weights' type.
struct ComputeOptions {
  // The type of activations and matrix products: float or bfloat16. Weights are cast when used. Statistics of norms,
  // softmax, log-probabilities, losses, and the gradients of float weights are float.
  at::ScalarType dtype = at::kFloat;
  bool checkpoints_layers = false;  // gradient checkpointing: of each layer only its input is kept (recompute.h)
  std::int64_t logit_chunk = 0;     // positions whose logits are in memory at once; 0: default_logit_chunk()
};

// Whether every weight is a finite number.
bool is_finite(const WeightMap& weights);

class Policy {
 public:
  enum class Gradients { kTracked, kNone };  // for training; for a frozen reference

  // Reads a checkpoint folder onto `device`: in f32 for training, else in the type of `compute`. Returns
  // RESOURCE_EXHAUSTED if it does not fit there. `log` as in read_weights().
  static absl::StatusOr<Policy> read(const std::filesystem::path& folder, Gradients gradients,
                                     at::Device device = at::kCPU, const ComputeOptions& compute = {},
                                     const std::function<void(std::string_view)>& log = {});
  // Uses the given weights on their device. They must be leaves without a history.
  static absl::StatusOr<Policy> over(const ModelConfig& config, WeightMap weights, Gradients gradients,
                                     const ComputeOptions& compute = {});

  // A policy of the same weights, which stay frozen, and of an adapter, which alone is trained: its factors in f32 on
  // the weights' device. Its dropout applies only where gradients are recorded. The weights must have no gradients
  // (Gradients::kNone). Returns RESOURCE_EXHAUSTED if the factors do not fit on the device.
  absl::StatusOr<Policy> adapted(Adapter adapter) const;
  // The same weights, shared and not copied, without the adapter: the reference of a policy with an adapter.
  Policy without_adapter() const;

  // Returns log softmax(logits / temperature) of each completion token, and that distribution's entropy, each [M]. Runs
  // the model once.
  TokenLogProbs score(const Batch& batch, double temperature) const;
  at::Tensor log_probs(const Batch& batch, double temperature) const { return score(batch, temperature).log_probs; }

  // Returns the model's likeliest token at each completion token's position, int64 [M], without gradients.
  at::Tensor likeliest(const Batch& batch) const;

  const WeightMap& weights() const { return weights_; }  // without the adapter's
  const std::optional<Adapter>& adapter() const { return adapter_; }
  // The tensors that an optimizer changes: the adapter's by PEFT's names, or all weights.
  WeightMap trained() const { return adapter_ ? adapter_->tensors() : weights_; }
  bool draws() const { return adapter_ && adapter_->lora.dropout > 0; }  // random numbers, while gradients are recorded
  at::Device device() const { return weights_.begin()->second.device(); }  // of all weights; batches must be there
  const ModelConfig& config() const { return config_; }

 private:
  Policy(const ModelConfig& config, WeightMap weights, Decoder decoder, const ComputeOptions& compute);

  at::Tensor hidden_at_sources(const Batch& batch) const;  // [M, C]
  // Without dropout unless `learns`.
  std::shared_ptr<const Decoder> decoder_with(const Adapter& adapter, bool learns) const;

  ModelConfig config_;
  WeightMap weights_;
  std::shared_ptr<const Decoder> decoder_;   // shared with layers that the backward pass recomputes
  std::shared_ptr<const Decoder> learning_;  // while gradients are recorded; the same unless there is dropout
  std::int64_t first_trained_layer_ = 0;
  std::optional<Adapter> adapter_;
  ComputeOptions compute_;
};

}  // namespace bascule::ref
