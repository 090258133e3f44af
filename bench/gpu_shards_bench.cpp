// bascule-bench-shards: a trainer of two ranks on two GPUs sends to two tensor-parallel engine ranks on the same GPUs,
// in turns with copies of the bytes that the engines need.
//
//   bascule-bench-shards [--layers 36] [--repeat 11]
//
// The tensors have Qwen3-8B's shapes, in bf16. The trainer's ranks hold rows, as FSDP shards them. An engine's rank
// takes rows of q, k, v, gate, up, embeddings and lm_head, columns of o and down, and the norms whole. The baseline
// copies as many bytes as each engine needs from its own GPU's shards with one cudaMemcpyAsync, and as many as it needs
// from the other GPU's with one cudaMemcpyPeerAsync, all four at once. With one GPU both ranks use it, for a test. All
// processes are threads of this one. Tensors hold random bytes; after the last send they are compared.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace {

using bascule::cat;
using bascule::DType;
using Clock = std::chrono::steady_clock;
using Shape = std::vector<std::int64_t>;

constexpr std::size_t kElementBytes = 2;

void must(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
  std::exit(1);
}
#define MUST(call) must(call, #call)

void must(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, std::string(bascule::message_of(status)).c_str());
  std::exit(1);
}
template <typename Value>
Value must(absl::StatusOr<Value> result, const char* what) {
  must(result.status(), what);
  return *std::move(result);
}

enum class Cut { kRows, kColumns, kWhole };
struct Tensor {
  std::string name;
  Shape shape;
  Cut cut;  // of the engine's ranks
};

std::vector<Tensor> qwen3_8b(int layers) {
  std::vector<Tensor> tensors{{"embed_tokens", {151'936, 4096}, Cut::kRows}};
  for (int i = 0; i < layers; ++i) {
    const auto add = [&](const char* name, Shape shape, Cut cut) {
      tensors.push_back({cat("layers.", i, ".", name), std::move(shape), cut});
    };
    add("q_proj", {4096, 4096}, Cut::kRows);
    add("k_proj", {1024, 4096}, Cut::kRows);
    add("v_proj", {1024, 4096}, Cut::kRows);
    add("o_proj", {4096, 4096}, Cut::kColumns);
    add("gate_proj", {12'288, 4096}, Cut::kRows);
    add("up_proj", {12'288, 4096}, Cut::kRows);
    add("down_proj", {4096, 12'288}, Cut::kColumns);
    add("input_layernorm", {4096}, Cut::kWhole);
    add("post_attention_layernorm", {4096}, Cut::kWhole);
  }
  tensors.push_back({"norm", {4096}, Cut::kWhole});
  tensors.push_back({"lm_head", {151'936, 4096}, Cut::kRows});
  return tensors;
}

std::uint64_t bytes_of(const Shape& shape) {
  std::uint64_t bytes = kElementBytes;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

std::byte* allocate(int device, std::uint64_t bytes) {
  MUST(cudaSetDevice(device));
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, bytes));
  return static_cast<std::byte*>(memory);
}

void fill(std::byte* to, std::uint64_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> block(std::min<std::uint64_t>(bytes, std::uint64_t{32} << 20) / 8 + 1);
  for (std::uint64_t& word : block) word = random();
  for (std::uint64_t at = 0; at < bytes; at += block.size() * 8)
    MUST(cudaMemcpy(to + at, block.data(), std::min<std::uint64_t>(bytes - at, block.size() * 8), cudaMemcpyDefault));
}

// A trainer's rank: half of the rows of each tensor, on its GPU.
class Shards final : public bascule::ShardSource {
 public:
  Shards(const std::vector<Tensor>& tensors, int rank, int device) : device_(device) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      Shape shape = tensors[t].shape, offset(shape.size(), 0);
      offset[0] = shape[0] / 2 * rank;
      shape[0] = rank == 0 ? shape[0] / 2 : shape[0] - offset[0];
      std::byte* const data = allocate(device, bytes_of(shape));
      fill(data, bytes_of(shape), 2 * t + static_cast<std::size_t>(rank));
      tensors_.push_back({.spec = {tensors[t].name, DType::kBF16, tensors[t].shape},
                          .shards = {{.offset = offset, .shape = shape, .data = data}}});
    }
  }
  absl::StatusOr<std::span<const bascule::ShardedTensor>> tensors() override { return tensors_; }
  int device() const override { return device_; }
  const std::byte* data(std::size_t t) const { return static_cast<const std::byte*>(tensors_[t].shards[0].data); }

 private:
  const int device_;
  std::vector<bascule::ShardedTensor> tensors_;
};

// An engine's rank: its own tensors, and a thread that commits without pause.
class Engine {
 public:
  Engine(const std::string& endpoint, const std::vector<Tensor>& tensors, int rank, int device) : device_(device) {
    std::vector<bascule::TargetTensor> targets;
    for (const Tensor& tensor : tensors) {
      bascule::TargetTensor target{.name = tensor.name, .dtype = DType::kBF16, .shape = tensor.shape};
      bascule::Part part{.tensor = tensor.name};
      if (tensor.cut != Cut::kWhole) {
        const std::size_t dim = tensor.cut == Cut::kRows ? 0 : 1;
        target.shape[dim] /= 2;
        part.slices.push_back(
            {.dim = static_cast<int>(dim), .begin = target.shape[dim] * rank, .end = target.shape[dim] * (rank + 1)});
        // Of rows, the engine's are the trainer's of the same rank. Of columns and of what is whole, half.
      }
      const std::uint64_t bytes = bytes_of(target.shape);
      (tensor.cut == Cut::kRows ? local_ : both_) += bytes;
      target.data = allocate(device, bytes);
      target.device = device;
      target.parts = {part};
      data_.push_back(target.data);
      targets.push_back(std::move(target));
    }
    receiver_ = std::make_unique<bascule::Receiver>(
        must(bascule::Receiver::connect({.endpoint = endpoint, .worker = cat("engine-", rank), .device = device}),
             "connect"));
    must(receiver_->register_model(std::move(targets)), "register_model");
    receiver_->join();
    thread_ = std::thread([this] {
      while (!over_) receiver_->commit();
    });
  }
  ~Engine() {
    over_ = true;
    thread_.join();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  int device() const { return device_; }
  std::uint64_t local() const { return local_ + both_ / 2; }
  std::uint64_t remote() const { return both_ / 2; }
  const std::byte* data(std::size_t t) const { return data_[t]; }

 private:
  const int device_;
  std::uint64_t local_ = 0, both_ = 0;
  std::vector<std::byte*> data_;
  std::unique_ptr<bascule::Receiver> receiver_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// The copies of one engine's rank, each from a contiguous source.
class Copies {
 public:
  Copies(const Engine& engine, int peer)
      : device_(engine.device()), peer_(peer), local_(engine.local()), remote_(engine.remote()) {
    from_ = allocate(device_, local_);
    fill(from_, local_, 1);
    from_peer_ = allocate(peer_, remote_);
    fill(from_peer_, remote_, 2);
    to_ = allocate(device_, local_ + remote_);
    if (peer_ != device_) (void)cudaDeviceEnablePeerAccess(peer_, 0);
    (void)cudaGetLastError();
    for (cudaStream_t& stream : streams_) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void begin() {
    MUST(cudaSetDevice(device_));
    MUST(cudaMemcpyPeerAsync(to_ + local_, device_, from_peer_, peer_, remote_, streams_[0]));
    MUST(cudaMemcpyAsync(to_, from_, local_, cudaMemcpyDeviceToDevice, streams_[1]));
  }
  void end() {
    MUST(cudaSetDevice(device_));
    for (cudaStream_t stream : streams_) MUST(cudaStreamSynchronize(stream));
  }

 private:
  const int device_, peer_;
  const std::uint64_t local_, remote_;
  std::byte *from_ = nullptr, *from_peer_ = nullptr, *to_ = nullptr;
  cudaStream_t streams_[2] = {};
};

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Whether an engine has what the trainer's ranks hold: some rows of each tensor.
void compare(const std::vector<Tensor>& tensors, const std::vector<Shards*>& trainer, const Engine& engine, int rank) {
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Shape& shape = tensors[t].shape;
    const std::size_t width = shape.size() < 2 ? 1 : static_cast<std::size_t>(shape[1]);
    const bool columns = tensors[t].cut == Cut::kColumns, rows = tensors[t].cut == Cut::kRows;
    const std::size_t own_width = columns ? width / 2 : width, half = static_cast<std::size_t>(shape[0]) / 2;
    for (std::size_t row = 0; row < static_cast<std::size_t>(shape[0]) / (rows ? 2 : 1); row += 97) {
      const std::size_t in_model = row + (rows ? half * static_cast<std::size_t>(rank) : 0);
      const Shards& holder = *trainer[in_model < half ? 0 : 1];
      std::vector<std::byte> expected(own_width * kElementBytes), found(expected.size());
      const std::size_t begin = columns ? own_width * static_cast<std::size_t>(rank) : 0;
      MUST(cudaMemcpy(expected.data(), holder.data(t) + (in_model % half * width + begin) * kElementBytes,
                      expected.size(), cudaMemcpyDefault));
      MUST(cudaMemcpy(found.data(), engine.data(t) + row * own_width * kElementBytes, found.size(), cudaMemcpyDefault));
      if (expected == found) continue;
      std::fprintf(stderr, "%s: row %zu of engine rank %d is wrong\n", tensors[t].name.c_str(), row, rank);
      std::exit(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int layers = 36, repeat = 11;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int& value = flag == "--layers" ? layers : repeat;
    if ((flag != "--layers" && flag != "--repeat") || (value = std::atoi(argv[i + 1])) < 1) {
      std::fprintf(stderr, "expected --layers N or --repeat N, found %s %s\n", argv[i], argv[i + 1]);
      return 2;
    }
  }
  int gpus = 0;
  MUST(cudaGetDeviceCount(&gpus));
  const int devices[2] = {0, gpus > 1 ? 1 : 0};
  const std::vector<Tensor> tensors = qwen3_8b(layers);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / cat("bascule-bench-shards-", ::getpid());
  const std::string endpoint =
      cat(bascule::plainest_scheme(/*on_device=*/true).name, "://", folder.string(), "?apply=commit");

  std::vector<Shards*> trainer;
  std::vector<std::unique_ptr<bascule::Sender>> senders(2);
  std::vector<std::future<void>> started;
  for (int rank = 0; rank < 2; ++rank) {
    auto shards = std::make_unique<Shards>(tensors, rank, devices[rank]);
    trainer.push_back(shards.get());
    started.push_back(std::async(std::launch::async, [&, rank, source = std::move(shards)]() mutable {
      senders[static_cast<std::size_t>(rank)] =
          std::make_unique<bascule::Sender>(must(bascule::Sender::listen({.endpoint = endpoint,
                                                                          .expect_workers = {.count = 2},
                                                                          .rank = static_cast<std::uint32_t>(rank),
                                                                          .ranks = 2}),
                                                 "listen"));
      must(senders[static_cast<std::size_t>(rank)]->register_shards(std::move(source)), "register_shards");
    }));
  }
  for (std::future<void>& each : started) each.get();
  std::uint64_t model = 0;
  for (const Tensor& tensor : tensors) model += bytes_of(tensor.shape);
  {
    std::vector<std::unique_ptr<Engine>> engines;
    engines.reserve(2);
    for (int rank = 0; rank < 2; ++rank)
      engines.push_back(std::make_unique<Engine>(endpoint, tensors, rank, devices[rank]));
    std::vector<std::unique_ptr<Copies>> copies;
    copies.reserve(2);
    for (int rank = 0; rank < 2; ++rank)
      copies.push_back(std::make_unique<Copies>(*engines[static_cast<std::size_t>(rank)], devices[1 - rank]));
    must(senders[0]->wait_for_workers(2, absl::Seconds(60)).status(), "wait_for_workers");

    std::uint64_t step = 0;
    bascule::SendReport last;
    const auto send = [&] {
      ++step;
      auto other =
          std::async(std::launch::async, [&] { must(senders[1]->send({.step = step}).status(), "send on rank 1"); });
      const Clock::time_point start = Clock::now();
      last = must(senders[0]->send({.step = step}), "send");
      const double seconds = since(start);
      other.get();
      if (!last.complete()) {
        std::fprintf(stderr, "%s\n", last.why_incomplete().c_str());
        std::exit(1);
      }
      return seconds;
    };
    const auto copy = [&] {
      const Clock::time_point start = Clock::now();
      for (auto& each : copies) each->begin();
      for (auto& each : copies) each->end();
      return since(start);
    };
    for (int i = 0; i < 2; ++i) send(), copy();
    std::vector<double> sends, baseline, packs, prepares, commits;
    for (int i = 0; i < repeat; ++i) {
      sends.push_back(send());
      packs.push_back(last.seconds.pack);
      prepares.push_back(last.seconds.prepare);
      commits.push_back(last.seconds.commit);
      baseline.push_back(copy());
    }
    for (int rank = 0; rank < 2; ++rank) compare(tensors, trainer, *engines[static_cast<std::size_t>(rank)], rank);
    std::printf(
        "%d GPU(s), %.2f GB in %zu tensors; each engine rank needs %.2f GB from its own GPU and %.2f GB from the "
        "other\n",
        gpus > 1 ? 2 : 1, static_cast<double>(model) / 1e9, tensors.size(),
        static_cast<double>(engines[0]->local()) / 1e9, static_cast<double>(engines[0]->remote()) / 1e9);
    std::printf(
        "send %.2f ms (pack %.2f ms, prepare %.2f ms, commit %.2f ms), copies %.2f ms, ratio %.3f (medians of %d "
        "turns)\n",
        1e3 * median(sends), 1e3 * median(packs), 1e3 * median(prepares), 1e3 * median(commits), 1e3 * median(baseline),
        median(sends) / median(baseline), repeat);
  }
  senders.clear();
  std::filesystem::remove_all(folder);
}
