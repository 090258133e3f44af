// Single steps of the engine's runner, with random weights and contexts of random tokens, which the runner itself has
// computed before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/bench/engine/cost.h>
#include <bascule/trainer_ref/engine/compute/torch_runner.h>

namespace bascule::bench {

struct EngineShape {
  ref::ModelConfig config;
  DType dtype = DType::kF32;
  ref::Place place{};
  std::size_t blocks = 0;  // of the cache
  std::int64_t most_rows = 0, longest = 0;
};

// Rates of copies of 1 GiB and products of 8192² on a GPU, 64 MiB and 1024² on a CPU: the best of several.
Rates measure_rates(const ref::Place& place, DType dtype);

// A runner with random weights; on a GPU it replays graphs if this build has them.
absl::StatusOr<std::unique_ptr<ref::TorchRunner>> make_runner(const EngineShape& shape);

Cost decode_cost(const EngineShape& shape, std::int64_t rows, std::int64_t context);
Cost prefill_cost(const EngineShape& shape, std::int64_t rows, std::int64_t tokens);

// Seconds of each of `repeat` steps in which `rows` sequences of `context` tokens generate one more. Returns
// RESOURCE_EXHAUSTED if the cache has too few blocks.
absl::StatusOr<std::vector<double>> time_decode(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                std::int64_t context, int repeat);
// The same for steps that compute `rows` whole prompts of `tokens`.
absl::StatusOr<std::vector<double>> time_prefill(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                 std::int64_t tokens, int repeat);

}  // namespace bascule::bench
