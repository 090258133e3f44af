#include <bascule/trainer_ref/bench/engine/step_bench.h>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <limits>
#include <random>

#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using ref::Row, ref::Sequence, ref::Step;

constexpr auto kBlock = static_cast<std::int64_t>(ref::kBlockTokens);
constexpr std::int64_t kPiece = 8192;  // tokens of a step that fills the cache

double bytes_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double best_of(int tries, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < tries; ++i) best = std::min(best, seconds_of(work));
  return best;
}

// Elements by which a token is multiplied in matrix products, except the last one, to logits.
double layer_weights(const ref::ModelConfig& config) {
  const auto attention = static_cast<double>(config.hidden_size * config.head_dim *
                                             (2 * config.num_attention_heads + 2 * config.num_key_value_heads));
  const auto mlp = 3 * static_cast<double>(config.hidden_size * config.intermediate_size);
  return static_cast<double>(config.num_hidden_layers) * (attention + mlp);
}

double head_weights(const ref::ModelConfig& config) {
  return static_cast<double>(config.vocab_size * config.hidden_size);
}

double attention_operations(const ref::ModelConfig& config, double pairs) {
  return 4 * pairs * static_cast<double>(config.num_hidden_layers * config.num_attention_heads * config.head_dim);
}

absl::StatusOr<std::vector<std::unique_ptr<Sequence>>> make_sequences(const EngineShape& shape, std::int64_t count,
                                                                      std::int64_t tokens) {
  const std::int64_t blocks = (tokens + kBlock - 1) / kBlock;
  if (count * blocks > static_cast<std::int64_t>(shape.blocks))
    return absl::ResourceExhaustedError(
        cat(count * tokens, " tokens do not fit into a cache of ", static_cast<std::int64_t>(shape.blocks) * kBlock));
  std::mt19937 random(1);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (std::int64_t i = 0; i < count; ++i) {
    auto sequence = std::make_unique<Sequence>();
    for (std::int64_t t = 0; t < tokens; ++t)
      sequence->tokens.push_back(static_cast<std::int64_t>(random()) % shape.config.vocab_size);
    sequence->prompt_tokens = sequence->tokens.size();
    for (std::int64_t b = 0; b < blocks; ++b) sequence->blocks.push_back(static_cast<ref::BlockId>(i * blocks + b));
    sequence->sampling.seed = static_cast<std::uint64_t>(i);
    sequence->adapter = adapter_of(shape, i);
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

absl::Status run(ref::Runner& runner, const Step& step) { return runner.run(step).status(); }

absl::StatusOr<std::vector<double>> time_steps(ref::Runner& runner, const Step& step, int repeat) {
  constexpr int kWarmUps = 3;  // of these, the second records a graph
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + repeat; ++i) {
    absl::Status status;
    const double taken = seconds_of([&] { status = run(runner, step); });
    BASCULE_TRY(status);
    if (i >= kWarmUps) seconds.push_back(taken);
  }
  return seconds;
}

}  // namespace

ref::AdapterId adapter_of(const EngineShape& shape, std::int64_t sequence) {
  return shape.adapters == 0 ? ref::kNoAdapter : static_cast<ref::AdapterId>(sequence % shape.adapters + 1);
}

absl::StatusOr<std::unique_ptr<ref::AdapterWeights>> random_adapter(const EngineShape& shape, std::uint64_t seed) {
  BASCULE_ASSIGN(ref::LoraConfig lora, ref::new_lora_config({.rank = shape.adapter_rank, .alpha = 16}));
  BASCULE_ASSIGN(ref::Adapter adapter, ref::Adapter::make(shape.config, std::move(lora), seed));
  const at::ScalarType type = shape.dtype == DType::kF32 ? at::kFloat : at::kBFloat16;  // as a folder's are converted
  for (auto& [name, factors] : adapter.modules) {
    factors.a = factors.a.to(shape.place.device, type);
    factors.b = (at::randn(factors.b.sizes()) * 0.01).to(shape.place.device, type);
  }
  return std::make_unique<ref::OpenedAdapter>(std::move(adapter));
}

Rates measure_rates(const ref::Place& place, DType dtype) {
  const c10::InferenceMode no_gradients;
  const ref::AtPlace at_place(place);
  const bool gpu = !place.device.is_cpu();
  const auto type = at::TensorOptions(place.device).dtype(dtype == DType::kF32 ? at::kFloat : at::kBFloat16);
  const auto wait = [&] {
    if (gpu) place.stream->synchronize();
  };
  const std::int64_t floats = std::int64_t{1} << (gpu ? 28 : 24), side = gpu ? 8192 : 1024;
  const at::Tensor from = at::randn({floats}, type.dtype(at::kFloat));
  at::Tensor to = at::empty_like(from);
  const at::Tensor left = at::randn({side, side}, type), right = at::randn({side, side}, type);
  at::Tensor product = at::empty_like(left);
  const int tries = 10;
  const double copied = best_of(tries, [&] {
    to.copy_(from);
    wait();
  });
  const double multiplied = best_of(tries, [&] {
    at::mm_out(product, left, right);
    wait();
  });
  const auto edge = static_cast<double>(side);
  return {.bytes_per_second = 8 * static_cast<double>(floats) / copied,
          .operations_per_second = 2 * edge * edge * edge / multiplied};
}

absl::StatusOr<std::unique_ptr<ref::TorchRunner>> make_runner(const EngineShape& shape) {
  ref::RunnerOptions options{.blocks = shape.blocks,
                             .max_adapters = static_cast<std::size_t>(shape.adapters),
                             .dtype = shape.dtype == DType::kF32 ? at::kFloat : at::kBFloat16,
                             .place = shape.place,
                             .most_rows = shape.most_rows,
                             .most_blocks = (shape.longest + kBlock - 1) / kBlock};
  if (!shape.place.device.is_cpu()) {
    BASCULE_ASSIGN(options.recorder, ref::open_graph_recorder());
  }
  BASCULE_ASSIGN(auto weights, ref::ServedWeights::random(shape.config, shape.dtype, shape.place, /*seed=*/1));
  auto runner = std::make_unique<ref::TorchRunner>(shape.config, std::move(options), std::move(weights));
  for (std::int64_t i = 0; i < shape.adapters; ++i) {
    BASCULE_ASSIGN(auto adapter, random_adapter(shape, static_cast<std::uint64_t>(i)));
    BASCULE_TRY(runner->set_adapter(adapter_of(shape, i), std::move(adapter)));
  }
  runner->commit();
  return runner;
}

Cost decode_cost(const EngineShape& shape, std::int64_t rows, std::int64_t context) {
  const ref::ModelConfig& config = shape.config;
  const double weights = layer_weights(config) + head_weights(config);
  const double kept = 2 * static_cast<double>(config.num_hidden_layers * config.num_key_value_heads * config.head_dim);
  const double pairs = static_cast<double>(rows * context);
  return {.bytes = bytes_of(shape.dtype) * (weights + pairs * kept),
          .operations = 2 * static_cast<double>(rows) * weights + attention_operations(config, pairs)};
}

Cost prefill_cost(const EngineShape& shape, std::int64_t rows, std::int64_t tokens) {
  const auto prompts = static_cast<double>(rows), count = static_cast<double>(tokens);
  const double weights = layer_weights(shape.config), head = head_weights(shape.config);
  return {
      .bytes = bytes_of(shape.dtype) * (weights + head),
      .operations = prompts * (2 * count * weights + 2 * head + attention_operations(shape.config, count * count / 2))};
}

absl::StatusOr<std::vector<double>> time_decode(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                std::int64_t context, int repeat) {
  BASCULE_ASSIGN(const auto sequences, make_sequences(shape, rows, context));
  Step decode;
  for (const auto& sequence : sequences) {
    for (std::int64_t begin = 0; begin < context - 1; begin += kPiece) {
      Step fill;
      const std::int64_t count = std::min(kPiece, context - 1 - begin);
      fill.rows.push_back({sequence.get(), static_cast<std::size_t>(begin), static_cast<std::size_t>(count)});
      BASCULE_TRY(run(runner, fill));
    }
    decode.rows.push_back({sequence.get(), static_cast<std::size_t>(context - 1), 1});
  }
  return time_steps(runner, decode, repeat);
}

absl::StatusOr<std::vector<double>> time_prefill(const EngineShape& shape, ref::Runner& runner, std::int64_t rows,
                                                 std::int64_t tokens, int repeat) {
  BASCULE_ASSIGN(const auto sequences, make_sequences(shape, rows, tokens));
  Step step;
  for (const auto& sequence : sequences) step.rows.push_back({sequence.get(), 0, static_cast<std::size_t>(tokens)});
  return time_steps(runner, step, repeat);
}

}  // namespace bascule::bench
