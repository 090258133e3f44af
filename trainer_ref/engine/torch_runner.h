// The runner in LibTorch: one forward pass over the rows of a step, attention over the paged cache, samples.
//
// On a GPU all of it goes to the place's stream, and each step's logits come to the host, where tokens are sampled.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <bascule/kernels/thread_pool.h>
#include <bascule/trainer_ref/engine/cache_attention.h>
#include <bascule/trainer_ref/engine/decode_graphs.h>
#include <bascule/trainer_ref/engine/runner.h>
#include <bascule/trainer_ref/engine/served_weights.h>

namespace bascule::ref {

struct RunnerOptions {
  std::size_t blocks = 1024;  // of the cache
  at::ScalarType dtype = at::kFloat;
  Place place{};
  // Of a GPU: steps in which every row computes one token are replayed as graphs. None: they run as the others do.
  std::unique_ptr<GraphRecorder> recorder{};
  DecodeLimits decode{};                             // of those steps
  std::size_t scored_logits = std::size_t{1} << 23;  // of a prompt whose tokens are scored, at a time: 32 MiB
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

class TorchRunner final : public Runner {
 public:
  TorchRunner(const ModelConfig& config, RunnerOptions options, std::unique_ptr<ServedWeights> weights);

  Served commit() override;
  absl::StatusOr<std::vector<RowOutput>> run(const Step& step) override;
  absl::Status sleep() override;
  absl::Status wake_up() override;
  GraphCounts graphs() const override { return graphs_ ? graphs_->counts() : GraphCounts{}; }

 private:
  absl::StatusOr<std::vector<RowOutput>> forward(const Step& step);
  at::Tensor logits_of(const Step& step, const std::vector<std::size_t>& sampled, std::vector<RowOutput>& outputs);
  void score_prompts(const Step& step, const FlatBatch& batch, const at::Tensor& hidden,
                     std::vector<RowOutput>& outputs);
  void for_each_row(std::size_t rows, std::size_t vocabulary, const std::function<void(std::size_t)>& work);
  at::Tensor on_host(const at::Tensor& logits);
  void make_cache();
  void empty_store();
  void clear_cache();

  const ModelConfig config_;
  const std::size_t blocks_;
  const at::ScalarType dtype_;
  const Place place_;
  const std::size_t scored_logits_;
  std::unique_ptr<ServedWeights> weights_;
  std::optional<CacheAttention> cache_;  // none while asleep
  std::optional<DecodeGraphs> graphs_;
  at::Tensor pinned_;  // float32, grown to the largest step's logits
  Served served_;
  kernels::ThreadPool samplers_;  // as many as LibTorch's
};

}  // namespace bascule::ref
