// Steps on a GPU by few kernels: the paged forward pass, and tokens drawn where the logits lie. The host uploads a few
// numbers a row and gets a few bytes back. Steps are replayed as graphs, but for long ones, whose
// launches hide behind their work, and those that score prompts.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/gpu_cache.h>
#include <bascule/trainer_ref/engine/make_steps.h>
#include <bascule/trainer_ref/engine/paged_forward.h>
#include <bascule/trainer_ref/engine/step_graphs.h>
#include <bascule/trainer_ref/engine/steps.h>

namespace bascule::ref {

class GpuSteps final : public Steps {
 public:
  GpuSteps(const ModelConfig& config, StepsOptions options);
  std::vector<RowOutput> run(const Step& step, const std::shared_ptr<const Decoder>& decoder) override;
  void clear() override { cache_.clear(); }
  GraphCounts graphs() const override { return graphs_ ? graphs_->counts() : GraphCounts{}; }

 private:
  // What comes back from draws: [most] of each, on the device, and in pinned memory.
  struct Results {
    at::Tensor drawn, tops, drawn_on_host, tops_on_host;
    Results(std::int64_t most, at::Device device);
  };
  void draw_picked(const Decoder& decoder, const StepNumbers& numbers, const at::Tensor& hidden);
  void draw(const at::Tensor& logits, const ops::Draw* draws, std::int64_t count);
  void fetch(std::int64_t count, bool with_tops);
  Sample result(std::int64_t draw, std::int64_t top) const;
  void score_prompts(const Step& step, const Decoder& decoder, const at::Tensor& hidden,
                     std::vector<RowOutput>& outputs);

  const ModelConfig config_;
  const StepsOptions options_;
  GpuCache cache_;
  PagedForward forward_;
  StepNumbers recorded_, launched_;  // of graphs, at fixed addresses, and of all other steps
  Results results_;
  std::optional<StepGraphs> graphs_;
};

}  // namespace bascule::ref
