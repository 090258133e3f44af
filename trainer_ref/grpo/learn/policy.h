// The model as its trainer sees it: parameters, and the log-probabilities that it gives to completions.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/batch.h>
#include <bascule/trainer_ref/model/decoder.h>
#include <bascule/trainer_ref/model/token_log_probs.h>

namespace bascule::ref {

// How a policy computes, whatever type its weights have.
struct ComputeOptions {
  // Of activations and matrix products: float or bfloat16. Weights are cast where they are used; statistics of norms,
  // softmax, log-probabilities and losses are float, and so are the gradients that weights of float get.
  at::ScalarType dtype = at::kFloat;
  bool checkpoints_layers = false;  // gradient checkpointing: of each layer only its input is kept (recompute.h)
  std::int64_t logit_chunk = 0;     // places whose logits lie in memory together; 0: default_logit_chunk()
};

// Whether every weight is a finite number.
bool is_finite(const WeightMap& weights);

class Policy {
 public:
  enum class Gradients { kTracked, kNone };  // of a policy that learns; of a frozen reference

  // Reads a checkpoint folder onto `device`: in f32 what learns, in the type of `compute` what is frozen.
  // RESOURCE_EXHAUSTED: it does not fit there.
  static absl::StatusOr<Policy> read(const std::filesystem::path& folder, Gradients gradients,
                                     at::Device device = at::kCPU, const ComputeOptions& compute = {});
  // Takes weights as they are, leaves without a history, and where they lie.
  static absl::StatusOr<Policy> over(const ModelConfig& config, WeightMap weights, Gradients gradients,
                                     const ComputeOptions& compute = {});

  // log softmax(logits / temperature) of each completion token, and the entropy of that distribution → [M]. Runs the
  // model once.
  TokenLogProbs score(const Batch& batch, double temperature) const;
  at::Tensor log_probs(const Batch& batch, double temperature) const { return score(batch, temperature).log_probs; }

  // The token that the model finds likeliest in place of each completion token → int64 [M]. Without gradients.
  at::Tensor likeliest(const Batch& batch) const;

  const WeightMap& weights() const { return weights_; }
  at::Device device() const { return weights_.begin()->second.device(); }  // of all weights; batches must lie there
  const ModelConfig& config() const { return config_; }

 private:
  Policy(const ModelConfig& config, WeightMap weights, Decoder decoder, const ComputeOptions& compute);

  at::Tensor hidden_at_sources(const Batch& batch) const;  // [M, C]

  ModelConfig config_;
  WeightMap weights_;
  std::shared_ptr<const Decoder> decoder_;  // layers that are computed once more in the backward pass hold it
  ComputeOptions compute_;
};

}  // namespace bascule::ref
