// Steps by LibTorch's operations alone: a flat batch through the Decoder, attention over contexts gathered from the
// cache, and sampling on the host. Used on a CPU, and on a GPU for models that GpuSteps does not support.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <bascule/kernels/thread_pool.h>
#include <bascule/trainer_ref/engine/compute/cache_attention.h>
#include <bascule/trainer_ref/engine/compute/steps.h>

namespace bascule::ref {

class PlainSteps final : public Steps {
 public:
  PlainSteps(const ModelConfig& config, const StepsOptions& options);
  void start(const Step& step, const std::shared_ptr<const Decoder>& decoder,
             const ServedAdapters& adapters) override;  // also computes it
  std::vector<RowOutput> finish() override { return std::move(outputs_); }
  void clear() override { cache_.clear(); }

 private:
  std::shared_ptr<const Decoder> adapted(const std::shared_ptr<const Decoder>& decoder, const Step& step,
                                         const FlatBatch& batch, const ServedAdapters& adapters) const;
  void score_prompts(const Step& step, const Decoder& decoder, const FlatBatch& batch, const at::Tensor& hidden);
  void for_each_row(std::size_t rows, const std::function<void(std::size_t)>& work);
  at::Tensor on_host(const at::Tensor& logits);

  const std::size_t vocabulary_;  // V
  const std::size_t scored_logits_;
  CacheAttention cache_;
  std::vector<RowOutput> outputs_;  // of the step that was started
  at::Tensor pinned_;               // float32, grown to the largest step's logits
  kernels::ThreadPool samplers_;    // as many threads as LibTorch has
};

}  // namespace bascule::ref
