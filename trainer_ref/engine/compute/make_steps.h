// Which way steps are computed, by the build, the model and the place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/compute/steps.h>
#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/trainer_ref/model/config.h>

namespace bascule::ref {

struct StepsOptions {
  std::size_t blocks = 1024;  // of the cache
  at::ScalarType dtype = at::kFloat;
  Place place{};
  GraphRecorder* recorder = nullptr;                 // outlives the steps; none: no graphs
  std::int64_t most_rows = 0;                        // of a step, siblings that draw with their lead included
  std::int64_t most_blocks = 0;                      // of a row
  std::size_t scored_logits = std::size_t{1} << 23;  // of a prompt whose tokens are scored, at a time: 32 MiB
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

// Whether make_steps() takes our kernels, which read joined weights: on a GPU, in a build with CUDA, for models whose
// shapes they know.
bool takes_kernels(const ModelConfig& config, const Place& place);

// Exceptions are LibTorch's: there is not the memory.
std::unique_ptr<Steps> make_steps(const ModelConfig& config, StepsOptions options);

}  // namespace bascule::ref
