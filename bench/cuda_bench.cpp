// bascule-bench-cuda: pack, unpack and digest on a GPU, each alternating with one device copy of as many bytes.
//
//   bascule-bench-cuda [--repeat 30] [--json FILE]
//
// The baseline is cudaMemcpyAsync from device to device. It copies half as many bytes as the row reads and writes
// together, so that both move the same number through memory. The baseline of a pack that merges adapters is a plain
// pack of the same matrices. Device events around one call of ours, and around one of the baseline's, give the times;
// the table shows medians of turns (ours, baseline, ours, baseline ...). In the source, tensors are in a shuffled order
// and hold random bytes. Each row's digest is compared with a digest of the resulting slot; the tests check the bytes
// themselves.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "segment_runs.h"
#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/cuda_pack.h>
#include <bascule/kernels/cuda_unpack.h>
#include <bascule/kernels/dtype.h>

namespace {

using bascule::DType;
using bascule::size_of;
using bascule::bench::segment_runs;
using bascule::kernels::Segment;
namespace cuda = bascule::kernels::cuda;

void must(const cuda::CudaResult& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", result.file, result.line, result.call,
               cudaGetErrorString(static_cast<cudaError_t>(result.code)));
  std::exit(1);
}
#define MUST(call) must(BASCULE_CUDA_RESULT(call))

struct Row {
  std::string name;
  std::uint64_t bytes = 0;  // read and written
  std::function<void(cudaStream_t)> ours;
  std::function<bool()> is_right;
  std::function<void(cudaStream_t)> baseline{};  // none: a device copy
};

struct Seconds {
  double median = 0, least = 0;
};
Seconds of(std::vector<float> milliseconds) {
  std::ranges::sort(milliseconds);
  return {milliseconds[milliseconds.size() / 2] / 1e3, milliseconds.front() / 1e3};
}

class Bench {
 public:
  static constexpr std::uint64_t kSlotBytes = std::uint64_t{3'090} << 20;

  Bench() {
    MUST(cudaMalloc(reinterpret_cast<void**>(&tensors_), 2 * kSlotBytes));
    MUST(cudaMalloc(reinterpret_cast<void**>(&slot_), kSlotBytes));
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) MUST(cudaEventCreate(&event));
    fill(tensors_, 2 * kSlotBytes);
    fill(slot_, kSlotBytes);
    must(cuda::DigestCell::make(&cell_));
  }

  // In a shuffled order.
  std::vector<void*> addresses(const std::vector<Segment>& segments, std::uint64_t shift = 0) {
    std::vector<std::size_t> order(segments.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    std::vector<void*> all(segments.size());
    std::byte* at = tensors_ + shift;
    for (const std::size_t i : order) {
      all[i] = at;
      at += segments[i].elements * size_of(segments[i].tensor_dtype);
    }
    return all;
  }

  void pack(std::string name, const std::vector<Segment>& segments, bool digest = true, std::uint64_t shift = 0) {
    const std::uint64_t slot_bytes =
        segments.back().slot_offset + segments.back().elements * size_of(segments.back().slot_dtype);
    cuda::PackPlan plan;
    must(cuda::PackPlan::make(segments, segments.size(), slot_bytes, &plan));
    const std::vector<void*> sources = addresses(segments, shift);
    run({.name = std::move(name),
         .bytes = moved(segments),
         .ours = [&](cudaStream_t stream) { must(plan.pack(sources, slot_, digest, stream)); },
         .is_right = [&] { return !digest || plan.digest() == digest_of_slot(slot_bytes); }});
  }
  // Matrices of BF16 to which a product of rank 16 is added, beside a plain pack of them. All have the same factors,
  // F32 as PEFT keeps them.
  void merge(std::string name, std::uint64_t matrices, std::uint64_t rows, std::uint64_t columns) {
    constexpr std::uint32_t kRank = 16;
    const std::vector<Segment> plain = segment_runs(DType::kBF16, DType::kBF16, matrices, rows * columns);
    std::vector<Segment> merged = plain;
    for (Segment& segment : merged) segment.arithmetic = 0;
    const auto left = static_cast<std::uint32_t>(matrices);
    const bascule::kernels::Arithmetic product = {
        .scale = 2,
        .rank = kRank,
        .columns = columns,
        .left = {.tensor = left, .row_stride = kRank, .column_stride = 1},
        .right = {.tensor = left + 1, .row_stride = static_cast<std::int64_t>(columns), .column_stride = 1}};
    const std::uint64_t slot_bytes = 2 * matrices * rows * columns;
    cuda::PackPlan plain_plan, plan;
    must(cuda::PackPlan::make(plain, matrices, slot_bytes, &plain_plan));
    must(cuda::PackPlan::make(merged, matrices + 2, slot_bytes, &plan, std::span(&product, 1)));
    const std::vector<void*> plain_sources = addresses(plain);
    std::vector<void*> sources = plain_sources;
    sources.push_back(tensors_ + kSlotBytes);
    sources.push_back(tensors_ + kSlotBytes + sizeof(float) * kRank * rows);
    run({.name = std::move(name),
         .bytes = moved(plain),
         .ours = [&](cudaStream_t stream) { must(plan.pack(sources, slot_, true, stream)); },
         .is_right = [&] { return plan.digest() == digest_of_slot(slot_bytes); },
         .baseline = [&](cudaStream_t stream) { must(plain_plan.pack(plain_sources, slot_, true, stream)); }});
  }
  void unpack(std::string name, const std::vector<Segment>& segments) {
    const std::uint64_t slot_bytes =
        segments.back().slot_offset + segments.back().elements * size_of(segments.back().slot_dtype);
    cuda::UnpackPlan plan;
    must(cuda::UnpackPlan::make(segments, segments.size(), slot_bytes, &plan));
    const std::vector<void*> targets = addresses(segments);
    run({.name = std::move(name),
         .bytes = moved(segments),
         .ours = [&](cudaStream_t stream) { must(plan.unpack(slot_, targets, true, stream)); },
         .is_right = [&] { return plan.digest() == digest_of_slot(slot_bytes); }});
  }
  void digest(std::string name) {
    cuda::DigestCell cell;
    must(cuda::DigestCell::make(&cell));
    run({.name = std::move(name),
         .bytes = kSlotBytes,
         .ours = [&](cudaStream_t stream) { must(cuda::digest(slot_, kSlotBytes, cell, stream)); },
         .is_right = [&] { return cell.digest() == digest_of_slot(kSlotBytes); }});
  }

  int repeat = 30;
  std::string json;

 private:
  static std::uint64_t moved(const std::vector<Segment>& segments) {
    std::uint64_t bytes = 0;
    for (const Segment& segment : segments)
      bytes += segment.elements * (size_of(segment.tensor_dtype) + size_of(segment.slot_dtype));
    return bytes;
  }
  bascule::Digest digest_of_slot(std::uint64_t bytes) {
    must(cuda::digest(slot_, bytes, cell_, stream_));
    MUST(cudaStreamSynchronize(stream_));
    return cell_.digest();
  }
  static void fill(std::byte* to, std::uint64_t bytes) {  // random floats, without NaN and infinity
    std::vector<std::uint64_t> some(std::size_t{8} << 20);
    std::mt19937_64 random(1);
    for (std::uint64_t at = 0; at < bytes; at += some.size() * 8) {
      if (at == 0)
        for (std::uint64_t& word : some) word = random() & 0xbfffbfffbfffbfff;
      for (std::uint64_t& word : some) word ^= (at >> 20) * 0x0001000300050007 & 0x003f003f003f003f;
      MUST(cudaMemcpy(to + at, some.data(), std::min<std::uint64_t>(some.size() * 8, bytes - at),
                      cudaMemcpyHostToDevice));
    }
  }
  // Within the tensors' memory, so that the slot does not change for the rows that read it.
  void copy(std::uint64_t bytes) {
    for (std::uint64_t some = 0; bytes > 0; bytes -= some) {
      some = std::min(bytes, kSlotBytes);
      MUST(cudaMemcpyAsync(tensors_, tensors_ + kSlotBytes, some, cudaMemcpyDeviceToDevice, stream_));
    }
  }
  void run(const Row& row) {
    std::vector<float> ours, baseline;
    bool right = true;
    for (int i = -3; i < repeat; ++i) {
      MUST(cudaEventRecord(events_[0], stream_));
      row.ours(stream_);
      MUST(cudaEventRecord(events_[1], stream_));
      MUST(cudaStreamSynchronize(stream_));
      if (i == -1) right = row.is_right();
      MUST(cudaEventRecord(events_[2], stream_));
      row.baseline ? row.baseline(stream_) : copy(row.bytes / 2);
      MUST(cudaEventRecord(events_[3], stream_));
      MUST(cudaStreamSynchronize(stream_));
      float a = 0, b = 0;
      MUST(cudaEventElapsedTime(&a, events_[0], events_[1]));
      MUST(cudaEventElapsedTime(&b, events_[2], events_[3]));
      if (i >= 0) {
        ours.push_back(a);
        baseline.push_back(b);
      }
    }
    const Seconds mine = of(ours), theirs = of(baseline);
    std::printf("%-42s %8.3f GB  ours %9.4f ms  baseline %9.4f ms  ratio %.3f  %7.1f GB/s  %s\n", row.name.c_str(),
                static_cast<double>(row.bytes) / 1e9, mine.median * 1e3, theirs.median * 1e3,
                mine.median / theirs.median, static_cast<double>(row.bytes) / 1e9 / mine.median,
                right ? "right" : "WRONG");
    char text[512];
    std::snprintf(
        text, sizeof(text),
        "%s{\"scenario\":\"%s\",\"bytes\":%llu,\"ours_seconds\":{\"p50\":%.9f,\"min\":%.9f},\"baseline\":{\"name\":"
        "\"%s\",\"seconds\":%.9f},\"ratio\":%.4f,\"right\":%s}",
        json.empty() ? "" : ",\n", row.name.c_str(), static_cast<unsigned long long>(row.bytes), mine.median,
        mine.least, row.baseline ? "plain pack" : "cudaMemcpyAsync", theirs.median, mine.median / theirs.median,
        right ? "true" : "false");
    json += text;
    wrong_ |= !right;
  }

 public:
  bool wrong() const { return wrong_; }

 private:
  std::byte *tensors_ = nullptr, *slot_ = nullptr;  // until the process ends
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[4] = {};
  cuda::DigestCell cell_;
  bool wrong_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  int repeat = 0;  // 0: the bench's own
  const char* file = nullptr;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "-h" || flag == "--help")
      return std::puts("usage: bascule-bench-cuda [--repeat N] [--json FILE]: kernels beside one copy, on GPU 0"), 0;
    const bool has_value = i + 1 < argc;
    if (flag == "--repeat" && has_value) {
      const std::string_view number = argv[i + 1];
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), repeat);
      if (error != std::errc() || end != number.data() + number.size()) repeat = 0;
    }
    if (flag == "--json" && has_value) file = argv[i + 1];
    if (!has_value || (flag != "--json" && (flag != "--repeat" || repeat < 1))) {
      std::fprintf(stderr, "bascule-bench-cuda: %s: expected --repeat N or --json FILE, as --repeat 20\n", argv[i]);
      return 2;
    }
  }
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return std::puts("bascule-bench-cuda: no GPU"), 77;
  Bench bench;
  if (repeat > 0) bench.repeat = repeat;
  cudaDeviceProp properties{};
  MUST(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);

  constexpr DType kB = DType::kBF16, kF = DType::kF32, kH = DType::kF16;
  constexpr std::uint64_t kEach = 4'571'136;  // 338 x 9.1 MB of bf16: 3.09 GB, ends in the middle of tiles
  bench.pack("pack 338 bf16", segment_runs(kB, kB, 338, kEach));
  bench.pack("pack 338 bf16, no digest", segment_runs(kB, kB, 338, kEach), false);
  bench.pack("pack 338 f32 to bf16", segment_runs(kF, kB, 338, kEach));
  bench.pack("pack 338 f32 to f16", segment_runs(kF, kH, 338, kEach));
  bench.pack("pack 338 bf16 to f32", segment_runs(kB, kF, 338, kEach / 2));
  bench.pack("pack 10000 bf16 of 64 KiB", segment_runs(kB, kB, 10'000, 32'768));
  bench.pack("pack 10000 bf16 of 64 KiB, no digest", segment_runs(kB, kB, 10'000, 32'768), false);
  bench.pack("pack 10000 f32 to bf16 of 64 KiB", segment_runs(kF, kB, 10'000, 32'768));
  bench.pack("pack 10000 bf16 of 65 KB, off tiles", segment_runs(kB, kB, 10'000, 32'800));
  bench.pack("pack 100000 bf16 of 6 KB", segment_runs(kB, kB, 100'000, 3'008));
  bench.pack("pack 338 bf16, sources 2 bytes off", segment_runs(kB, kB, 338, kEach), true, 2);
  bench.pack("pack 40 bf16, 1 MiB", segment_runs(kB, kB, 40, 13'120));
  Segment transposed = segment_runs(kB, kB, 1, std::uint64_t{16'384} * 16'384)[0];
  transposed.rank = 2;
  transposed.shape = {16'384, 16'384};
  transposed.tensor_strides = {1, 16'384};
  transposed.slot_strides = {16'384, 1};
  bench.pack("pack a transposed bf16 matrix of 16384", {transposed});
  bench.pack("pack a transposed bf16 matrix, no digest", {transposed}, false);
  bench.merge("pack 96 bf16 matrices of 4096, merged r=16", 96, 4'096, 4'096);
  bench.merge("pack 32 bf16 matrices of 4096x12288, merged", 32, 4'096, 12'288);
  bench.unpack("unpack 338 bf16", segment_runs(kB, kB, 338, kEach));
  bench.unpack("unpack 338 f32 from bf16", segment_runs(kF, kB, 338, kEach));
  bench.unpack("unpack 338 bf16 from f32", segment_runs(kB, kF, 338, kEach / 2));
  std::vector<Segment> columns = segment_runs(kB, kB, 64, std::uint64_t{4'096} * 4'096);
  for (Segment& segment : columns) {  // half of the columns of each matrix, as a tensor-parallel rank reads them
    segment.elements /= 2;
    segment.rank = 2;
    segment.shape = {4'096, 2'048};
    segment.tensor_strides = {2'048, 1};
    segment.slot_strides = {4'096, 1};
  }
  Segment last{.tensor = 64,
               .tensor_dtype = kB,
               .slot_dtype = kB,
               .slot_offset = std::uint64_t{64} * 4'096 * 4'096 * 2,
               .elements = 8,
               .shape = {8},
               .tensor_strides = {1},
               .slot_strides = {1}};
  columns.push_back(last);
  bench.unpack("unpack half of the columns of 64 matrices", columns);
  bench.digest("digest of 3.24 GB");

  if (file != nullptr) {
    std::FILE* out = std::fopen(file, "w");
    if (out == nullptr) return std::perror(file), 1;
    std::fprintf(out, "{\"machine\":{\"device\":\"%s\"},\"records\":[\n%s\n]}\n", properties.name, bench.json.c_str());
    if (std::fclose(out) != 0) return std::perror(file), 1;
  }
  if (std::fflush(stdout) != 0) return std::perror("write to stdout"), 1;
  return bench.wrong() ? 1 : 0;
}
