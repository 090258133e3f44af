#include "support/devices/device_bytes.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#if BASCULE_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_digest.h>
#include <bascule/transport/cuda/device_memory.h>
#endif

namespace bascule::test {
namespace {

#if BASCULE_HAVE_CUDA
void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}
#endif

class Placed final : public TensorSource {
 public:
  Placed(std::unique_ptr<TensorSource> source, int device) : source_(std::move(source)), device_(device) {}
  absl::StatusOr<std::span<const TensorView>> views() override {
    const absl::StatusOr<std::span<const TensorView>> host = source_->views();
    if (!host.ok()) return host.status();
    views_.assign(host->begin(), host->end());
    memory_.resize(views_.size());
    for (std::size_t i = 0; i < views_.size(); ++i) {
      const std::size_t bytes = byte_count(views_[i].dtype, views_[i].shape);
      if (!memory_[i]) memory_[i] = device_bytes(device_, bytes);
      upload(memory_[i].get(), {views_[i].data, bytes}, device_);
      views_[i].data = memory_[i].get();
      views_[i].device = device_;
    }
    return std::span<const TensorView>(views_);
  }

 private:
  std::unique_ptr<TensorSource> source_;
  const int device_;
  std::vector<TensorView> views_;
  std::vector<std::shared_ptr<std::byte>> memory_;
};

}  // namespace

int device_for(std::string_view endpoint) {
#if BASCULE_HAVE_CUDA
  const std::string_view scheme = endpoint.substr(0, endpoint.find(':'));
  if (scheme == "auto" || scheme == "cuda-ipc" || scheme == "nccl") return 0;
#endif
  (void)endpoint;
  return kHost;
}

#if BASCULE_HAVE_CUDA

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::vector<int> used_devices() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
  must(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 12000, cudaEnableDefault, &how),
       "look up");
  must(found == nullptr ? cudaErrorSymbolNotFound : cudaSuccess, "cuDevicePrimaryCtxGetState");
  const auto state_of = reinterpret_cast<int (*)(int, unsigned*, int*)>(found);  // CUresult, CUdevice
  std::vector<int> used;
  for (int device = 0; device < gpu_count(); ++device) {
    unsigned flags = 0;
    int active = 0;
    must(state_of(device, &flags, &active) == 0 ? cudaSuccess : cudaErrorUnknown, "cuDevicePrimaryCtxGetState");
    if (active != 0) used.push_back(device);
  }
  return used;
}

bool can_reach(int device, int peer) {
  int reaches = 0;
  must(cudaDeviceCanAccessPeer(&reaches, device, peer), "cudaDeviceCanAccessPeer");
  return reaches != 0;
}

void warm_up(int device) {
  if (device == kHost || gpu_count() <= device) return;
  must(cudaSetDevice(device), "cudaSetDevice");
  must(cudaFree(nullptr), "cudaFree");
}

std::size_t used_bytes(int device) {
  must(cudaSetDevice(device), "cudaSetDevice");
  std::size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total - free;
}

void lose_context(int device) {
  must(cudaSetDevice(device), "cudaSetDevice");
  kernels::cuda::DigestCell cell;
  must(kernels::cuda::DigestCell::make(&cell).ok() ? cudaSuccess : cudaErrorUnknown, "make a digest's cell");
  // After a kernel reads an unmapped address, every call fails for good.
  constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 20;
  (void)kernels::cuda::digest(reinterpret_cast<const void*>(kNowhere), 4096, cell, nullptr);
  must(cudaDeviceSynchronize() == cudaSuccess ? cudaErrorUnknown : cudaSuccess, "lose the context");
}

std::shared_ptr<std::byte> device_bytes(int device, std::size_t bytes) {
  must(cudaSetDevice(device), "cudaSetDevice");
  void* made = nullptr;
  must(cudaMalloc(&made, bytes > 0 ? bytes : 1), "cudaMalloc");
  return {static_cast<std::byte*>(made), [](std::byte* memory) { (void)cudaFree(memory); }};
}

void upload(std::byte* to, std::span<const std::byte> from, int device) {
  must(cudaSetDevice(device), "cudaSetDevice");
  if (!from.empty()) must(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "upload");
  must(cudaStreamSynchronize(nullptr), "upload");  // a copy from pageable memory may return before it has landed
}

void download(std::span<std::byte> to, const std::byte* from, int device) {
  must(cudaSetDevice(device), "cudaSetDevice");
  if (!to.empty()) must(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "download");
}

#else

int gpu_count() { return 0; }
std::vector<int> used_devices() { return {}; }
bool can_reach(int, int) { return false; }
void warm_up(int) {}
std::size_t used_bytes(int) { return 0; }
void lose_context(int) { std::abort(); }
std::shared_ptr<std::byte> device_bytes(int, std::size_t) { std::abort(); }
void upload(std::byte*, std::span<const std::byte>, int) { std::abort(); }
void download(std::span<std::byte>, const std::byte*, int) { std::abort(); }

#endif

std::shared_ptr<std::byte> bytes_on(int device, std::size_t bytes) {
  if (device != kHost) return device_bytes(device, bytes);
  return {new std::byte[bytes]{}, std::default_delete<std::byte[]>()};
}

void put(std::byte* to, std::span<const std::byte> from, int device) {
  if (device != kHost) return upload(to, from, device);
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

std::vector<std::byte> bytes_of(const TensorView& tensor) {
  std::vector<std::byte> bytes(byte_count(tensor.dtype, tensor.shape));
  if (tensor.device != kHost) {
    download(bytes, tensor.data, tensor.device);
  } else if (!bytes.empty()) {
    std::memcpy(bytes.data(), tensor.data, bytes.size());
  }
  return bytes;
}

std::unique_ptr<TensorSource> placed(std::unique_ptr<TensorSource> source, int device) {
  if (device == kHost) return source;
  return std::make_unique<Placed>(std::move(source), device);
}

}  // namespace bascule::test
