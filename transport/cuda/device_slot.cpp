#include <bascule/transport/cuda/device_slot.h>

#include <cuda_runtime_api.h>

#include <utility>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

// The mapping and the descriptor keep the memory; the allocation's own handle would be lost if the device was reset.
absl::StatusOr<std::shared_ptr<std::byte>> map_to_write(const Allocation& allocation) {
  const auto mapping = std::make_shared<DeviceMapping>();
  BASCULE_ASSIGN(*mapping, DeviceMapping::map(allocation, Access::kReadWrite, allocation.device()));
  return std::shared_ptr<std::byte>(mapping, mapping->data());
}

}  // namespace

absl::StatusOr<SlotMemory> make_device_slot(const Device& device, std::uint64_t bytes, ForNetwork network,
                                            std::uint64_t* allocated) {
  BASCULE_ASSIGN(const Allocation made, Allocation::make(device.ordinal, bytes, network));
  SlotMemory memory;
  BASCULE_ASSIGN(memory.device_memory, map_to_write(made));
  BASCULE_ASSIGN(memory.descriptor, made.export_descriptor());
  memory.bytes = bytes;
  memory.device = device.ordinal;
  memory.description = cat("memory of ", device.name, ", ", to_string(device.uuid));
  if (allocated != nullptr) *allocated = made.bytes();
  return memory;
}

absl::Status clear(const SlotMemory& slot) {
  const kernels::cuda::DeviceGuard guard(slot.device);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_CUDA(cudaMemset(slot.device_memory.get(), 0, slot.bytes));
  BASCULE_CUDA(cudaDeviceSynchronize());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<std::byte>> allocate_mapped(int device, std::uint64_t bytes, ForNetwork network) {
  BASCULE_ASSIGN(const Allocation made, Allocation::make(device, bytes, network));
  return map_to_write(made);
}

}  // namespace bascule::inline v0::cuda
