// The model as its trainer sees it: parameters, and the log-probabilities that it gives to completions.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/batch.h>
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

  // Returns log softmax(logits / temperature) of each completion token, and that distribution's entropy, each [M]. Runs
  // the model once.
  TokenLogProbs score(const Batch& batch, double temperature) const;
  at::Tensor log_probs(const Batch& batch, double temperature) const { return score(batch, temperature).log_probs; }

  // Returns the model's likeliest token at each completion token's position, int64 [M], without gradients.
  at::Tensor likeliest(const Batch& batch) const;

  const WeightMap& weights() const { return weights_; }
  at::Device device() const { return weights_.begin()->second.device(); }  // of all weights; batches must be there
  const ModelConfig& config() const { return config_; }

 private:
  Policy(const ModelConfig& config, WeightMap weights, Decoder decoder, const ComputeOptions& compute);

  at::Tensor hidden_at_sources(const Batch& batch) const;  // [M, C]

  ModelConfig config_;
  WeightMap weights_;
  std::shared_ptr<const Decoder> decoder_;  // shared with layers that the backward pass recomputes
  ComputeOptions compute_;
};

}  // namespace bascule::ref
