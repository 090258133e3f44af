// bascule-bench-kernels: pack, unpack, cast and digest compared with a threaded memcpy, to or from a memfd like a slot.
//
//   bascule-bench-kernels --benchmark_enable_random_interleaving=true --benchmark_repetitions=15
//       --benchmark_report_aggregates_only=true
//
// bytes_per_second counts every byte read and every byte written once, so that rows with different casts can be
// compared: a row's rate divided by memcpy's is its share of the machine's rate. Interleaving alternates the rows;
// compare medians. The CPU column is the time of all threads; if other programs run, it is more reliable than
// wall-clock time.
//
// The rows `merge` add a product of rank 16 to every matrix, in turns with a plain pack of the same matrices. Their
// column over_plain is the CPU time of the merges divided by the CPU time of the plain packs. The row `scale` does the
// same for tensors of a small adapter, of which every second one is scaled.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

#include "segment_runs.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/pack.h>
#include <bascule/kernels/share.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>

namespace {

using bascule::DType;
using bascule::kernels::Segment;
using bascule::kernels::ThreadPool;

constexpr std::size_t kSlotBytes = std::size_t{1} << 30;

struct Memory {
  std::byte* data = nullptr;
  explicit Memory(std::size_t bytes, bool slot) {
    const int descriptor = slot ? memfd_create("bench", MFD_CLOEXEC) : -1;
    if (slot && ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) std::abort();
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         (slot ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, descriptor, 0);
    if (address == MAP_FAILED) std::abort();
    if (slot) close(descriptor);
    data = static_cast<std::byte*>(address);
  }
};

// Shared by all rows and made once, since populating takes longer than measuring.
struct Fixture {
  Memory source{2 * kSlotBytes, false};  // random: F32 needs twice the bytes of the slot's BF16
  Memory slot{kSlotBytes, true};
  ThreadPool pool{0};

  Fixture() {
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i < 2 * kSlotBytes; i += 8) {
      const std::uint64_t word = random() & 0xbfffbfffbfffbfff;  // of any type: no NaN, no infinity
      std::memcpy(source.data + i, &word, 8);
    }
    std::memcpy(slot.data, source.data, kSlotBytes);  // for rows that only read it
  }
};

Fixture& fixture() {
  static Fixture once;
  return once;
}

void report(benchmark::State& state, std::size_t read_bytes, std::size_t written_bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(read_bytes + written_bytes) * state.iterations());
}

void copy(benchmark::State& state) {
  Fixture& f = fixture();
  const auto tasks = static_cast<std::size_t>(f.pool.threads());
  const std::size_t each = kSlotBytes / tasks;
  for (auto _ : state)
    f.pool.run(tasks, [&](std::size_t i) { std::memcpy(f.slot.data + i * each, f.source.data + i * each, each); });
  report(state, each * tasks, each * tasks);
}

// `tensors` runs that fill `slot_bytes` of a slot, consecutive on both sides.
std::vector<Segment> runs(DType tensor, DType slot, std::size_t tensors, std::size_t slot_bytes) {
  return bascule::bench::segment_runs(tensor, slot, tensors, slot_bytes / size_of(slot) / tensors);
}

// The addresses of the tensors of `segments`, consecutive from `base`.
template <typename Byte>
std::vector<Byte*> addresses(const std::vector<Segment>& segments, Byte* base) {
  std::vector<Byte*> all;
  for (const Segment& segment : segments) {
    all.push_back(base);
    base += segment.elements * size_of(segment.tensor_dtype);
  }
  return all;
}

void report(benchmark::State& state, const std::vector<Segment>& segments) {
  std::size_t tensor_bytes = 0, slot_bytes = 0;
  for (const Segment& segment : segments) {
    tensor_bytes += segment.elements * size_of(segment.tensor_dtype);
    slot_bytes += segment.elements * size_of(segment.slot_dtype);
  }
  report(state, tensor_bytes, slot_bytes);
}

void pack(benchmark::State& state, DType from, DType to, std::size_t tensors, std::size_t slot_bytes, bool digest) {
  Fixture& f = fixture();
  const std::vector<Segment> segments = runs(from, to, tensors, slot_bytes);
  const std::vector<const std::byte*> sources = addresses<const std::byte>(segments, f.source.data);
  const std::size_t bytes = slot_bytes / size_of(to) / tensors * tensors * size_of(to);
  for (auto _ : state)
    benchmark::DoNotOptimize(bascule::kernels::pack(segments, sources, {f.slot.data, bytes}, digest, f.pool));
  report(state, segments);
}

// The reverse: reads the slot's memfd and writes the sources.
void unpack(benchmark::State& state, DType from, DType to, std::size_t tensors, bool digest) {
  Fixture& f = fixture();
  const std::vector<Segment> segments = runs(to, from, tensors, kSlotBytes);
  const std::vector<std::byte*> targets = addresses(segments, f.source.data);
  for (auto _ : state)
    benchmark::DoNotOptimize(bascule::kernels::unpack(segments, targets, {f.slot.data, kSlotBytes}, digest, f.pool));
  report(state, segments);
}

// Half of the columns of every matrix, as a tensor-parallel rank reads matrices that it splits by columns.
void unpack_columns(benchmark::State& state) {
  Fixture& f = fixture();
  constexpr std::int64_t kWidth = 4096, kRows = kSlotBytes / 2 / 64 / kWidth;
  std::vector<Segment> segments = runs(DType::kBF16, DType::kBF16, 64, kSlotBytes);
  for (Segment& segment : segments) {
    segment.elements /= 2;
    segment.rank = 2;
    segment.shape = {kRows, kWidth / 2};
    segment.tensor_strides = {kWidth / 2, 1};
    segment.slot_strides = {kWidth, 1};
  }
  const std::vector<std::byte*> targets = addresses(segments, f.source.data);
  for (auto _ : state)
    benchmark::DoNotOptimize(bascule::kernels::unpack(segments, targets, {f.slot.data, kSlotBytes}, false, f.pool));
  report(state, segments);
}

// Half of the columns of every matrix, as a rank of a sharded trainer writes matrices that it cuts by columns.
void share_columns(benchmark::State& state, DType from, std::int64_t width, std::size_t slot_bytes) {
  Fixture& f = fixture();
  const std::int64_t rows = static_cast<std::int64_t>(slot_bytes) / 2 / 16 / width;
  std::vector<Segment> segments = runs(from, DType::kBF16, 16, slot_bytes);
  for (Segment& segment : segments) {
    segment.elements /= 2;
    segment.rank = 2;
    segment.shape = {rows, width / 2};
    segment.tensor_strides = {width / 2, 1};
    segment.slot_strides = {width, 1};
  }
  const std::vector<const std::byte*> sources = addresses<const std::byte>(segments, f.source.data);
  const bascule::kernels::SharePlan plan(segments, slot_bytes);
  std::vector<bascule::kernels::TileTotal> totals(plan.shares().size());
  for (auto _ : state) bascule::kernels::pack_share(plan, sources, {f.slot.data, slot_bytes}, totals, f.pool);
  report(state, segments);
}

void transpose(benchmark::State& state) {
  Fixture& f = fixture();
  constexpr std::int64_t kSide = 16384;
  const std::vector<Segment> segments = {{.tensor_dtype = DType::kBF16,
                                          .slot_dtype = DType::kBF16,
                                          .rank = 2,
                                          .elements = kSide * kSide,
                                          .shape = {kSide, kSide},
                                          .tensor_strides = {1, kSide},
                                          .slot_strides = {kSide, 1}}};
  const std::vector<const std::byte*> addresses = {f.source.data};
  constexpr std::size_t kBytes = 2 * kSide * kSide;
  for (auto _ : state)
    benchmark::DoNotOptimize(bascule::kernels::pack(segments, addresses, {f.slot.data, kBytes}, true, f.pool));
  report(state, kBytes, kBytes);
}

double cpu_seconds() {  // of all threads
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Packs with arithmetic, in turns with a plain pack of the same tensors.
void compute(benchmark::State& state, const std::vector<Segment>& plain, const std::vector<Segment>& computed,
             const std::vector<const std::byte*>& tensors, const bascule::kernels::Arithmetic& arithmetic) {
  Fixture& f = fixture();
  const Segment& last = plain.back();
  const std::span<std::byte> slot(f.slot.data, last.slot_offset + last.elements * size_of(last.slot_dtype));
  double plain_seconds = 0, computed_seconds = 0;
  for (auto _ : state) {
    const double begin = cpu_seconds();
    benchmark::DoNotOptimize(bascule::kernels::pack(plain, tensors, slot, true, f.pool));
    const double middle = cpu_seconds();
    benchmark::DoNotOptimize(
        bascule::kernels::pack(computed, tensors, slot, true, f.pool, nullptr, std::span(&arithmetic, 1)));
    const double end = cpu_seconds();
    plain_seconds += middle - begin;
    computed_seconds += end - middle;
    state.SetIterationTime(end - middle);
  }
  state.counters["over_plain"] = computed_seconds / plain_seconds;
  report(state, computed);
}

// The tensors of an adapter for a model of Qwen3-0.6B's shape, as bench/adapters.py sends it: 392 of F32, 40 MB.
void scale(benchmark::State& state) {
  Fixture& f = fixture();
  const std::vector<Segment> plain = bascule::bench::segment_runs(DType::kF32, DType::kF32, 392, 25728);
  std::vector<Segment> scaled = plain;
  for (std::size_t i = 0; i < scaled.size(); i += 2) scaled[i].arithmetic = 0;
  compute(state, plain, scaled, addresses<const std::byte>(plain, f.source.data), {.scale = 2});
}

// Matrices of BF16 with `columns` columns. All have the same factors, F32 as PEFT keeps them.
void merge(benchmark::State& state, std::int64_t rows, std::int64_t columns) {
  Fixture& f = fixture();
  constexpr std::uint32_t kRank = 16;
  const auto elements = static_cast<std::size_t>(rows * columns);
  const std::vector<Segment> plain =
      bascule::bench::segment_runs(DType::kBF16, DType::kBF16, kSlotBytes / 2 / elements, elements);
  std::vector<Segment> merged = plain;
  for (Segment& segment : merged) segment.arithmetic = 0;
  std::vector<float> factors(static_cast<std::size_t>(rows + columns) * kRank);
  std::mt19937_64 random(1);
  for (float& value : factors) value = std::normal_distribution<float>()(random);
  std::vector<const std::byte*> tensors = addresses<const std::byte>(plain, f.source.data);
  const auto left = static_cast<std::uint32_t>(tensors.size());
  tensors.push_back(reinterpret_cast<const std::byte*>(factors.data()));
  tensors.push_back(reinterpret_cast<const std::byte*>(factors.data() + rows * kRank));
  const bascule::kernels::Arithmetic product = {
      .scale = 2,
      .rank = kRank,
      .columns = static_cast<std::uint64_t>(columns),
      .left = {.tensor = left, .row_stride = kRank, .column_stride = 1},
      .right = {.tensor = left + 1, .row_stride = columns, .column_stride = 1}};
  compute(state, plain, merged, tensors, product);
}

void digest(benchmark::State& state) {
  Fixture& f = fixture();
  for (auto _ : state) benchmark::DoNotOptimize(bascule::kernels::digest({f.slot.data, kSlotBytes}, f.pool));
  report(state, kSlotBytes, 0);
}

#define ROW(...) BENCHMARK_CAPTURE(__VA_ARGS__)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond)
BENCHMARK(copy)->Name("memcpy")->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(digest)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
BENCHMARK(transpose)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
ROW(pack, bf16_338, DType::kBF16, DType::kBF16, 338, kSlotBytes, true);
ROW(pack, bf16_338_no_digest, DType::kBF16, DType::kBF16, 338, kSlotBytes, false);
ROW(pack, f32_to_bf16_338, DType::kF32, DType::kBF16, 338, kSlotBytes, true);
ROW(pack, f32_to_f16_338, DType::kF32, DType::kF16, 338, kSlotBytes, true);
ROW(pack, bf16_to_f32_338, DType::kBF16, DType::kF32, 338, kSlotBytes, true);
ROW(pack, bf16_1KiB_tensors, DType::kBF16, DType::kBF16, kSlotBytes / 1024, kSlotBytes, true);
ROW(pack, f32_to_bf16_1KiB_tensors, DType::kF32, DType::kBF16, kSlotBytes / 1024, kSlotBytes, true);
ROW(pack, bf16_small_model_1MiB, DType::kBF16, DType::kBF16, 40, std::size_t{1} << 20, true);
ROW(unpack, bf16_338, DType::kBF16, DType::kBF16, 338, true);
ROW(unpack, bf16_338_no_digest, DType::kBF16, DType::kBF16, 338, false);
ROW(unpack, bf16_to_f32_338, DType::kBF16, DType::kF32, 338, true);
ROW(unpack, f32_to_bf16_338, DType::kF32, DType::kBF16, 338, true);
ROW(unpack, bf16_1KiB_tensors, DType::kBF16, DType::kBF16, kSlotBytes / 1024, true);
ROW(share_columns, bf16_4096_of_8192, DType::kBF16, 8192, kSlotBytes);
ROW(share_columns, bf16_32_of_64, DType::kBF16, 64, kSlotBytes / 8);
ROW(share_columns, f32_to_bf16_32_of_64, DType::kF32, 64, kSlotBytes / 8);
#define MERGE(rows, columns) \
  BENCHMARK_CAPTURE(merge, rows##x##columns, rows, columns)->UseManualTime()->Unit(benchmark::kMillisecond)
BENCHMARK(scale)->UseManualTime()->Unit(benchmark::kMillisecond);
MERGE(1024, 1024);
MERGE(1024, 3072);
MERGE(4096, 4096);
MERGE(4096, 12288);
BENCHMARK(unpack_columns)->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
