// The runner in LibTorch: one forward pass over the rows of a step, attention over the paged cache, samples.
#pragma once

#include <memory>

#include "trainer_ref/engine/cache_attention.h"
#include "trainer_ref/engine/runner.h"
#include "trainer_ref/engine/served_weights.h"

namespace bascule::ref {

class TorchRunner final : public Runner {
 public:
  TorchRunner(const ModelConfig& config, std::size_t blocks, at::ScalarType dtype,
              std::unique_ptr<ServedWeights> weights)
      : weights_(std::move(weights)), cache_(config, blocks, dtype) {}

  Served commit() override { return served_ = weights_->commit(); }
  absl::StatusOr<std::vector<std::vector<Sample>>> run(const Step& step) override;

 private:
  absl::StatusOr<std::vector<std::vector<Sample>>> forward(const Step& step);

  std::unique_ptr<ServedWeights> weights_;
  CacheAttention cache_;
  Served served_;
};

}  // namespace bascule::ref
