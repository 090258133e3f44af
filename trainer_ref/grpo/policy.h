// The model as its trainer sees it: parameters, and the log-probabilities that it gives to completions.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/batch.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

class Policy {
 public:
  enum class Gradients { kTracked, kNone };  // of a policy that learns; of a frozen reference

  // Reads a checkpoint folder, in f32, onto `device`. RESOURCE_EXHAUSTED: it does not fit there.
  static absl::StatusOr<Policy> read(const std::filesystem::path& folder, Gradients gradients,
                                     at::Device device = at::kCPU);
  // Takes weights as they are, leaves without a history, and where they lie.
  static absl::StatusOr<Policy> over(const ModelConfig& config, WeightMap weights, Gradients gradients);

  // Logits of the tokens that a completion could have had in place of each that it has → [M, V]. Runs the model
  // once.
  at::Tensor logits(const Batch& batch) const;

  // log softmax(logits / temperature) of each completion token → [M].
  at::Tensor log_probs(const Batch& batch, double temperature) const;

  const WeightMap& weights() const { return weights_; }
  at::Device device() const { return weights_.begin()->second.device(); }  // of all weights; batches must lie there
  const ModelConfig& config() const { return config_; }

 private:
  Policy(const ModelConfig& config, WeightMap weights, Decoder decoder)
      : config_(config), weights_(std::move(weights)), decoder_(std::move(decoder)) {}

  ModelConfig config_;
  WeightMap weights_;
  Decoder decoder_;
};

}  // namespace bascule::ref
