#include <bascule/transport/cuda/device_tensors.h>

#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

DeviceParameters::DeviceParameters(int device, std::vector<std::pair<TensorSpec, void**>> tensors,
                                   std::shared_ptr<ParameterMemory> memory, Stream stream)
    : device_(device), stream_(stream), memory_(std::move(memory)) {
  specs_.reserve(tensors.size());
  for (std::pair<TensorSpec, void**>& tensor : tensors) {
    specs_.push_back(std::move(tensor.first));
    pointers_.push_back(tensor.second);
    views_.push_back({.name = specs_.back().name,
                      .dtype = specs_.back().dtype,
                      .shape = specs_.back().shape,
                      .strides = {},
                      .data = nullptr,
                      .device = device});
  }
}

absl::StatusOr<std::span<const TensorView>> DeviceParameters::views() {
  for (std::size_t i = 0; i < views_.size(); ++i) views_[i].data = static_cast<const std::byte*>(*pointers_[i]);
  return std::span<const TensorView>(views_);
}

absl::Status DeviceParameters::move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) {
  if (!memory_)
    return failed_precondition("slots=1 moves these tensors into the slot: give DeviceParameters a ParameterMemory");
  const kernels::cuda::DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_TRY(check_stream(device_, stream_));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::uint64_t bytes = byte_count(specs_[i].dtype, specs_[i].shape);
    if (*pointers_[i] != targets[i] && bytes > 0)
      BASCULE_CUDA(cudaMemcpyAsync(targets[i], *pointers_[i], bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  BASCULE_CUDA(cudaStreamSynchronize(stream_));
  for (std::size_t i = 0; i < targets.size(); ++i) *pointers_[i] = targets[i];
  memory_->memory = std::move(keeps);
  return absl::OkStatus();
}

}  // namespace bascule::inline v0::cuda
