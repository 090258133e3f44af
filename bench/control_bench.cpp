// bascule-bench-control measures the parts of the control path, without sockets: compiling a plan, which happens when a
// worker joins; encoding and decoding a message, which happens a few times per send; and what each send does with the
// totals of 250,000 tiles, a model of 16.4 GB. Rank 0 adds them up. An engine that copies parts copies and proves the
// table, and compares the totals that it found with the table. `cold`: no total is in a cache, as if a GPU had written
// them.
//
//   bascule-bench-control --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/ranks/shared_table.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/regions.h>
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

// ---- the totals of a large model's tiles ----

using kernels::TileTotal;
constexpr std::size_t kTotals = 250'000;

template <typename Value>
Value checked(absl::StatusOr<Value> value) {
  if (!value.ok()) std::abort();
  return *std::move(value);
}

void fill(std::span<TileTotal> totals) {
  for (std::size_t i = 0; i < totals.size(); ++i) totals[i] = {.low = i * 0x9e3779b97f4a7c15, .high = i};
}

// Elsewhere than on x86, `cold` means warm.
void evict([[maybe_unused]] std::span<const TileTotal> totals) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < totals.size(); i += 64 / sizeof(TileTotal)) __builtin_ia32_clflush(&totals[i]);
  __builtin_ia32_mfence();
#endif
}

// Measures `work`, each time without its memory in the caches if `cold`.
template <typename Work>
void measure(benchmark::State& state, bool cold, std::initializer_list<std::span<const TileTotal>> memory, Work work) {
  for (auto _ : state) {
    if (cold) {
      state.PauseTiming();
      for (const std::span<const TileTotal> one : memory) evict(one);
      state.ResumeTiming();
    }
    work();
  }
}

void add_up_totals(benchmark::State& state, bool cold, int threads) {
  SharedTable table = checked(SharedTable::make(kTotals * kernels::kTileBytes));
  fill(table.totals());
  std::vector<TileTotal> to(kTotals);
  kernels::ThreadPool pool(threads);
  measure(state, cold, {table.totals(), to}, [&] { benchmark::DoNotOptimize(table.add_up(to, pool)); });
}

void prove_totals(benchmark::State& state, bool cold) {
  ControlPage page = checked(ControlPage::make(1, kTotals));
  if (!page.add_table(0).ok()) std::abort();
  page.begin(0);
  const std::span<TileTotal> table = page.fill_table(0);
  fill(table);
  constexpr std::uint64_t kBytes = kTotals * kernels::kTileBytes;
  const Digest digest = kernels::sum_of(table).finish(kBytes);
  page.seal(0, 1, kBytes, digest);
  const ControlPageView view = checked(ControlPageView::map(UniqueFd(::dup(page.descriptor())), 1));
  const Regions regions = checked(Regions::make({&kBytes, 1}));
  std::vector<TileTotal> memory(kTotals);
  measure(state, cold, {table, memory}, [&] {
    TileTotal sum;
    memory = *view.table(0, std::move(memory), &sum);
    if (!regions.check({&memory, 1}, digest, &sum).ok()) std::abort();
  });
}

// 70 of each 100 tiles, about as many as a tensor-parallel rank of two copies whole.
void compare_totals(benchmark::State& state, bool cold) {
  std::vector<TileTotal> table(kTotals), found(kTotals);
  std::vector<std::uint8_t> wanted(kTotals);
  for (std::size_t i = 0; i < kTotals; ++i) wanted[i] = i % 100 < 70;
  fill(table);
  fill(found);
  measure(state, cold, {table, found}, [&] { benchmark::DoNotOptimize(kernels::equal_totals(table, found, wanted)); });
}

BENCHMARK_CAPTURE(add_up_totals, one_thread, false, 1)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK_CAPTURE(add_up_totals, one_thread_cold, true, 1)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK_CAPTURE(add_up_totals, all_threads_cold, true, 0)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK_CAPTURE(prove_totals, warm, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(prove_totals, cold, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compare_totals, warm, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compare_totals, cold, true)->Unit(benchmark::kMicrosecond);
BENCHMARK(arrange)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(plan)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(encode_small);
BENCHMARK(decode_small);
BENCHMARK(encode_welcome)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_welcome)->Arg(338)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
