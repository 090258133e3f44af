// bascule-bench-control measures the parts of the control path, without sockets and threads: compiling a plan, which
// happens when a worker joins, and encoding and decoding a message, which happens a few times per send.
//
//   bascule-bench-control --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/messages.h>

namespace {

using namespace bascule;

std::vector<TensorSpec> specs_of(std::int64_t tensors) {
  std::vector<TensorSpec> specs;
  for (std::int64_t i = 0; i < tensors; ++i)
    specs.push_back({.name = cat("model.layers.", i / 12, ".self_attn.q_proj.weight.", i % 12),
                     .dtype = DType::kBF16,
                     .shape = {64, 8 + i % 3}});
  return specs;
}

Layout layout_of(std::int64_t tensors) {
  absl::StatusOr<Layout> layout = Layout::arrange(specs_of(tensors), {});
  if (!layout.ok()) std::abort();
  return *std::move(layout);
}

void arrange(benchmark::State& state) {
  const std::vector<TensorSpec> specs = specs_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Layout::arrange(specs, {}));
}

void plan(benchmark::State& state) {
  const std::vector<TensorSpec> specs = specs_of(state.range(0));
  const Layout layout = layout_of(state.range(0));
  std::vector<TensorView> views;
  views.reserve(specs.size());
  for (const TensorSpec& spec : specs)
    views.push_back({.name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .strides = {}, .data = nullptr});
  for (auto _ : state) benchmark::DoNotOptimize(Plan::gather(layout, views));
}

void encode_message(benchmark::State& state, const Message& message) {
  for (auto _ : state) benchmark::DoNotOptimize(encode(message));
}
void decode_message(benchmark::State& state, const Message& message) {
  const std::vector<std::uint8_t> bytes = encode(message);
  for (auto _ : state) benchmark::DoNotOptimize(decode(bytes));
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes.size()) * state.iterations());
}

// A message that every send has.
Message small_message() {
  Sealed sealed;
  sealed.version = 1'234'567;
  sealed.digest = Digest{.low = 0x0123456789abcdef, .high = 0xfedcba9876543210};
  return sealed;
}

// The message that a worker gets when it joins.
Message welcome_of(std::int64_t tensors) {
  Welcome welcome;
  welcome.id = 1;
  welcome.epoch = 1'700'000'000;
  welcome.layout = layout_of(tensors);
  welcome.slots = {0, 1};
  return welcome;
}

void encode_small(benchmark::State& state) { encode_message(state, small_message()); }
void decode_small(benchmark::State& state) { decode_message(state, small_message()); }
void encode_welcome(benchmark::State& state) { encode_message(state, welcome_of(state.range(0))); }
void decode_welcome(benchmark::State& state) { decode_message(state, welcome_of(state.range(0))); }

BENCHMARK(arrange)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(plan)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(encode_small);
BENCHMARK(decode_small);
BENCHMARK(encode_welcome)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_welcome)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
