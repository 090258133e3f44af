// Computes steps on a GPU with few kernels: the paged forward pass, and the drawing of tokens on the device. The host
// uploads a few numbers per row and gets a few bytes back. Steps are replayed as graphs, except long ones, whose
// launches overlap their work, and steps that score prompts. Only steps of requests that change logits have the kernels
// which do so.
//
// Two steps may be in progress, one after the other, so the host's buffers exist twice.
#pragma once

#include <c10/core/Event.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/compute/gpu_adapters.h>
#include <bascule/trainer_ref/engine/compute/gpu_cache.h>
#include <bascule/trainer_ref/engine/compute/paged_forward.h>
#include <bascule/trainer_ref/engine/compute/step_graphs.h>
#include <bascule/trainer_ref/engine/compute/steps.h>

namespace bascule::ref {

class GpuSteps final : public Steps {
 public:
  GpuSteps(const ModelConfig& config, StepsOptions options);
  void start(const Step& step, const std::shared_ptr<const Decoder>& decoder, const ServedAdapters& adapters) override;
  std::vector<RowOutput> finish() override;
  bool runs_ahead() const override { return true; }
  void clear() override { cache_.clear(); }
  GraphCounts graphs() const override { return graphs_ ? graphs_->counts() : GraphCounts{}; }

 private:
  // The results of draws, with room for `most` of each.
  struct Results {
    at::Tensor drawn, tops;
    Results(std::int64_t most, const at::TensorOptions& options);
  };
  // In pinned memory; valid once `ready`.
  struct HostResults : Results {
    explicit HostResults(std::int64_t most);
    c10::Event ready{c10::kCUDA};
  };
  struct Started {
    HostResults* results = nullptr;
    struct DrawOf {
      std::size_t row = 0;
      std::int64_t top = 0;
    };
    std::vector<DrawOf> draws = {};
    std::vector<RowOutput> outputs = {};  // with the scores of prompts
  };
  at::Tensor forward(const Decoder& decoder, const StepNumbers& numbers);
  void draw_picked(const Decoder& decoder, const StepNumbers& numbers, const at::Tensor& hidden);
  void draw(const at::Tensor& logits, const ops::Draw* draws, std::int64_t count);
  void draw_adjusted(const at::Tensor& logits, const StepNumbers& numbers);
  void fetch(HostResults& to, std::int64_t count, bool with_tops);
  Sample result(const HostResults& results, std::int64_t draw, std::int64_t top) const;
  void score_prompts(const Step& step, const Decoder& decoder, const at::Tensor& hidden, Started& started);

  const ModelConfig config_;
  const StepsOptions options_;
  GpuCache cache_;
  GpuAdapters adapters_;
  PagedForward forward_;
  StepNumbers recorded_, launched_;  // recorded_ for graphs, at fixed addresses; launched_ for all other steps
  Results results_;
  std::array<HostResults, 2> host_results_;
  std::size_t turn_ = 0;                   // the host_results_ of the last step that was started
  std::vector<std::int32_t> first_draws_;  // for each row of that step
  std::deque<Started> started_;
  std::optional<StepGraphs> graphs_;
};

}  // namespace bascule::ref
