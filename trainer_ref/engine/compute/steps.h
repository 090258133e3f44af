// How steps are computed, and the cache between them: by LibTorch's operations alone (PlainSteps), or by few kernels on
// a GPU (GpuSteps). For the engine's thread, with the place's stream current.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/compute/served_adapters.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/trainer_ref/engine/schedule/step.h>
#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

struct StepsOptions {
  std::size_t blocks = 1024;  // of the cache
  at::ScalarType dtype = at::kFloat;
  Place place{};
  GraphRecorder* recorder = nullptr;                 // outlives the steps; null: no graphs
  std::int64_t most_rows = 0;                        // of a step; also the most draws, as siblings draw from one row
  std::int64_t most_blocks = 0;                      // of a row
  std::size_t scored_logits = std::size_t{1} << 23;  // made at a time to score a prompt: 32 MiB
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

class Steps {
 public:
  virtual ~Steps() = default;
  // Like Runner::start(), with the weights of the model, and of the adapters that its rows have. LibTorch's exceptions
  // pass through; after one, do not call finish() for this step.
  virtual void start(const Step& step, const std::shared_ptr<const Decoder>& decoder,
                     const ServedAdapters& adapters) = 0;
  // Finishes the oldest step that was started, and returns an output for each row.
  virtual std::vector<RowOutput> finish() = 0;
  virtual bool runs_ahead() const { return false; }
  // Fills the cache with zeros after a failed step, so that no NaN stays there.
  virtual void clear() = 0;
  virtual GraphCounts graphs() const { return {}; }
};

}  // namespace bascule::ref
