// The runner in LibTorch: the weights that are served, and the steps computed with them. LibTorch's exceptions become
// statuses here. On a GPU all work goes to the place's stream.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/engine/compute/make_steps.h>
#include <bascule/trainer_ref/engine/compute/served_adapters.h>
#include <bascule/trainer_ref/engine/compute/served_weights.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>

namespace bascule::ref {

struct RunnerOptions {
  std::size_t blocks = 1024;  // of the cache
  std::size_t max_adapters = 0;
  at::ScalarType dtype = at::kFloat;
  Place place{};
  // On a GPU, replays steps as graphs. Null: steps run without graphs.
  std::unique_ptr<GraphRecorder> recorder{};
  std::int64_t most_rows = 256;                      // of a step; also the most draws, as siblings draw from one row
  std::int64_t most_blocks = 256;                    // of a row
  std::size_t scored_logits = std::size_t{1} << 23;  // made at a time to score a prompt: 32 MiB
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

class TorchRunner final : public Runner {
 public:
  TorchRunner(const ModelConfig& config, RunnerOptions options, std::unique_ptr<ServedWeights> weights);

  Served commit() override;
  Served look() override;
  absl::Status set_adapter(AdapterId id, std::unique_ptr<AdapterWeights> weights) override;
  void remove_adapter(AdapterId id) override;
  std::span<const ServedAdapter> adapters() const override { return adapters_.served(); }
  void start(const Step& step) override;
  absl::StatusOr<std::vector<RowOutput>> finish() override;
  bool runs_ahead() const override { return steps_ && steps_->runs_ahead(); }
  absl::Status sleep() override;
  absl::Status wake_up() override;
  GraphCounts graphs() const override { return steps_ ? steps_->graphs() : GraphCounts{}; }

 private:
  void make();
  void empty_store();
  void clear_cache();

  const ModelConfig config_;
  const RunnerOptions options_;
  std::unique_ptr<ServedWeights> weights_;
  ServedAdapters adapters_;
  std::unique_ptr<Steps> steps_;      // none while asleep
  std::deque<absl::Status> started_;  // the status of each unfinished step
  Served served_;
};

}  // namespace bascule::ref
