#include <bascule/bench/gpu.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <string>

#include <bascule/bench/gpu_kernels.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/cuda/device_tensors.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

absl::Status checked(cudaError_t result, std::string_view call) {
  if (result == cudaSuccess) return absl::OkStatus();
  const std::string text = cat(call, ": ", cudaGetErrorString(result));
  return result == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}
#define BENCH_CUDA(call) BASCULE_TRY(checked(call, #call))

std::string memory_of(int device) { return device == kHost ? "pinned memory" : cat("GPU ", device); }

// Makes `device` current, and restores the previous one.
class Current {
 public:
  explicit Current(int device) {
    (void)cudaGetDevice(&before_);
    (void)cudaSetDevice(device);
  }
  ~Current() { (void)cudaSetDevice(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
};

absl::StatusOr<std::shared_ptr<std::byte>> allocate_on(int device, std::uint64_t bytes) {
  void* memory = nullptr;
  if (device == kHost) {
    BENCH_CUDA(cudaMallocHost(&memory, bytes));
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* at) { (void)cudaFreeHost(at); });
  }
  const Current current(device);
  BENCH_CUDA(cudaMalloc(&memory, bytes));
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* at) { (void)cudaFree(at); });
}

class CudaGpu final : public Gpu {
 public:
  static absl::StatusOr<std::shared_ptr<Gpu>> open(int device) {
    auto made = std::make_shared<CudaGpu>();
    made->device_ = device;
    cudaDeviceProp properties{};
    BENCH_CUDA(cudaGetDeviceProperties(&properties, device));
    made->name_ = properties.name;
    BASCULE_ASSIGN(made->found_, allocate_on(device, 2 * sizeof(unsigned long long)));
    BASCULE_TRY(made->forget_wrong());
    return made;
  }

  int device() const override { return device_; }
  std::string name() const override { return name_; }

  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes) override {
    return allocate_on(device_, bytes);
  }

  absl::StatusOr<std::uint64_t> free_bytes() override {
    const Current current(device_);
    BENCH_CUDA(cudaDeviceSynchronize());
    std::size_t free = 0, all = 0;
    BENCH_CUDA(cudaMemGetInfo(&free, &all));
    return free;
  }

  absl::Status write(const Elements& elements, std::byte* to) override {
    const Current current(device_);
    launch_write(elements.first_word, elements.count, elements.trainer, elements.memory, to);
    return checked(cudaGetLastError(), "write content");
  }

  absl::Status compare(const Elements& elements, const std::byte* with) override {
    const Current current(device_);
    launch_compare(elements.first_word, elements.count, elements.trainer, elements.memory, with, wrong());
    return checked(cudaGetLastError(), "compare content");
  }

  absl::StatusOr<std::optional<std::uint64_t>> wrong_element() override {
    const Current current(device_);
    unsigned long long found = 0;
    BENCH_CUDA(cudaMemcpy(&found, wrong(), sizeof(found), cudaMemcpyDeviceToHost));
    if (found == kNone) return std::nullopt;
    BASCULE_TRY(forget_wrong());
    return found;
  }

  absl::Status read(const std::byte* data, std::uint64_t bytes) override {
    const Current current(device_);
    launch_read(data, bytes, reinterpret_cast<unsigned*>(wrong() + 1));
    BASCULE_TRY(checked(cudaGetLastError(), "read weights"));
    return wait();
  }

  absl::Status wait() override {
    const Current current(device_);
    return checked(cudaStreamSynchronize(nullptr), "wait for the default stream");
  }

  std::unique_ptr<TensorSource> source(std::vector<std::pair<TensorSpec, void**>> tensors,
                                       std::shared_ptr<ParameterMemory> memory) override {
    return std::make_unique<cuda::DeviceParameters>(device_, std::move(tensors), std::move(memory));
  }

 private:
  static constexpr unsigned long long kNone = std::numeric_limits<unsigned long long>::max();

  unsigned long long* wrong() { return reinterpret_cast<unsigned long long*>(found_.get()); }
  absl::Status forget_wrong() {
    const Current current(device_);
    return checked(cudaMemset(wrong(), 0xff, sizeof(kNone)), "cudaMemset");
  }

  int device_ = 0;
  std::string name_;
  std::shared_ptr<std::byte> found_;  // the first wrong element; also the sink of read()
};

class DeviceCopy final : public PlainCopy {
 public:
  static absl::StatusOr<std::unique_ptr<PlainCopy>> make(int from, int to, std::uint64_t bytes) {
    auto made = std::make_unique<DeviceCopy>();
    made->name_ =
        from == to ? "cudaMemcpyAsync on the device" : cat("cudaMemcpyAsync, ", memory_of(from), " to ", memory_of(to));
    made->from_ = from;
    made->to_ = to;
    made->bytes_ = bytes;
    if (from == kHost) {
      BASCULE_ASSIGN(made->source_, allocate_on(kHost, bytes));
      std::generate_n(made->source_.get(), bytes, [word = std::uint32_t{1}]() mutable {
        return static_cast<std::byte>((word = word * 1664525 + 1013904223) >> 24);
      });
    }
    BASCULE_ASSIGN(made->target_, allocate_on(to, bytes));
    const Current current(made->device());
    if (from != kHost && to != kHost && from != to) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(from == made->device() ? to : from, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) BASCULE_TRY(checked(enabled, "cudaDeviceEnablePeerAccess"));
      (void)cudaGetLastError();
    }
    BENCH_CUDA(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : made->events_) BENCH_CUDA(cudaEventCreate(&event));
    return made;
  }
  ~DeviceCopy() override {
    const Current current(device());
    for (cudaEvent_t event : events_)
      if (event != nullptr) (void)cudaEventDestroy(event);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  const std::string& name() const override { return name_; }

  absl::StatusOr<double> run(std::span<const std::byte> source) override {
    const Current current(device());
    const std::byte* const from = source_ ? source_.get() : source.data();
    BENCH_CUDA(cudaEventRecord(events_[0], stream_));
    if (from_ != kHost && to_ != kHost && from_ != to_) {
      BENCH_CUDA(cudaMemcpyPeerAsync(target_.get(), to_, from, from_, bytes_, stream_));
    } else {
      BENCH_CUDA(cudaMemcpyAsync(target_.get(), from, bytes_, cudaMemcpyDefault, stream_));
    }
    BENCH_CUDA(cudaEventRecord(events_[1], stream_));
    BENCH_CUDA(cudaEventSynchronize(events_[1]));
    float milliseconds = 0;
    BENCH_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return 1e-3 * milliseconds;
  }

 private:
  int device() const { return from_ == kHost ? to_ : from_; }

  std::string name_;
  int from_ = kHost, to_ = kHost;
  std::uint64_t bytes_ = 0;
  std::shared_ptr<std::byte> source_, target_;  // source_: only for the host
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, 2> events_{};
};

}  // namespace

absl::StatusOr<std::shared_ptr<Gpu>> Gpu::open(int device) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || device >= count)
    return absl::NotFoundError(cat("there is no GPU ", device, ": this process sees ", count,
                                   found == cudaSuccess ? "" : cat(" (", cudaGetErrorString(found), ")"),
                                   count > 0 ? cat("; give a number from 0 to ", count - 1, ", as --device=cuda:0")
                                             : "; give --device=cpu, for schemes in host memory"));
  return CudaGpu::open(device);
}

absl::StatusOr<SharedMemory> share_with_peer(int device, int peer, std::uint64_t bytes) {
  BASCULE_ASSIGN(const cuda::Allocation made, cuda::Allocation::make(device, bytes));
  BASCULE_ASSIGN(cuda::DeviceMapping own, cuda::DeviceMapping::map(made, Access::kReadWrite, device));
  BASCULE_ASSIGN(const UniqueFd descriptor, made.export_descriptor());
  BASCULE_ASSIGN(const cuda::Allocation imported,
                 cuda::Allocation::import(device, descriptor.get(), made.bytes(), peer));
  BASCULE_ASSIGN(cuda::DeviceMapping seen, cuda::DeviceMapping::map(imported, Access::kReadOnly, peer));
  const auto of_device = std::make_shared<cuda::DeviceMapping>(std::move(own));
  const auto of_peer = std::make_shared<cuda::DeviceMapping>(std::move(seen));
  return SharedMemory{.data = {of_device, of_device->data()}, .of_peer = {of_peer, of_peer->data()}};
}

absl::StatusOr<std::unique_ptr<PlainCopy>> make_device_copy(int from, int to, std::uint64_t bytes) {
  return DeviceCopy::make(from, to, bytes);
}

}  // namespace bascule::bench
