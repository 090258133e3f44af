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
  // Sequences have these in turns, if there are any: all linear modules of all layers, factors in `dtype`.
  std::int64_t adapters = 0, adapter_rank = 16;
};

// The adapter of a sequence: 1 for the first, or kNoAdapter.
ref::AdapterId adapter_of(const EngineShape& shape, std::int64_t sequence);
// One with random factors.
absl::StatusOr<std::unique_ptr<ref::AdapterWeights>> random_adapter(const EngineShape& shape, std::uint64_t seed);

// Returns the best rates of several copies (1 GiB; on a CPU 64 MiB) and matrix products (8192²; on a CPU 1024²).
Rates measure_rates(const ref::Place& place, DType dtype);

// Makes a runner with random weights; on a GPU it replays graphs if this build has them.
absl::StatusOr<std::unique_ptr<ref::TorchRunner>> make_runner(const EngineShape& shape);

Cost decode_cost(const EngineShape& shape, std::int64_t rows, std::int64_t context);
Cost prefill_cost(const EngineShape& shape, std::int64_t rows, std::int64_t tokens);

// Returns the seconds of each of `repeat` steps, in which `rows` sequences of `context` tokens generate one more.
// Returns RESOURCE_EXHAUSTED if the cache has too few blocks.
absl::StatusOr<std::vector<double>> time_decode(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                std::int64_t context, int repeat);
// Like time_decode(), for steps that compute `rows` whole prompts of `tokens` tokens.
absl::StatusOr<std::vector<double>> time_prefill(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                 std::int64_t tokens, int repeat);

}  // namespace bascule::bench
