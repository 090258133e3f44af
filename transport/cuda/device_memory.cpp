#include <bascule/transport/cuda/device_memory.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <limits>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/driver.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

using kernels::cuda::DeviceGuard;
using kernels::cuda::keep_error;

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

absl::StatusOr<std::uint64_t> granularity_of(const Driver& driver, int device) {
  const CUmemAllocationProp properties = properties_of(device);
  std::size_t bytes = 0;
  BASCULE_CUDA_DRIVER(driver.mem_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  return bytes;
}

}  // namespace

absl::StatusOr<Allocation> Allocation::make(int device, std::uint64_t bytes, ForNetwork network) {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_CUDA(cudaFree(nullptr));  // makes the context if there is none yet
  int exports = 0;
  BASCULE_CUDA_DRIVER(functions->device_get_attribute(
      &exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
  if (exports == 0) return unimplemented("device ", device, " exports no memory by descriptor");
  BASCULE_ASSIGN(const std::uint64_t granularity, granularity_of(*functions, device));
  if (bytes > std::numeric_limits<std::uint64_t>::max() - granularity)
    return invalid_argument("expected a size that a device can have, found ", bytes, " bytes");
  Allocation made;
  made.device_ = made.current_ = device;
  const std::uint64_t rounded =
      std::max<std::uint64_t>((bytes + granularity - 1) / granularity * granularity, granularity);
  CUmemAllocationProp properties = properties_of(device);
  int reached = 0;
  if (network == ForNetwork::kYes)
    BASCULE_CUDA_DRIVER(
        functions->device_get_attribute(&reached, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
  properties.allocFlags.gpuDirectRDMACapable = reached != 0 ? 1 : 0;
  if (absl::Status status =
          cuda_status(BASCULE_CUDA_CODE(functions->mem_create(&made.handle_, rounded, &properties, 0)));
      !status.ok())
    return annotate(status, cat("a slot of ", rounded, " bytes", free_memory(device)));
  made.bytes_ = rounded;
  return made;
}

absl::StatusOr<Allocation> Allocation::import(int device, int fd, std::uint64_t bytes, int reader) {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const DeviceGuard guard(reader);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_CUDA(cudaFree(nullptr));
  BASCULE_ASSIGN(const std::uint64_t granularity, granularity_of(*functions, device));
  if (bytes == 0 || bytes % granularity != 0)
    return invalid_argument("expected device memory in whole granules of ", granularity, " bytes, found ", bytes);
  Allocation made;
  made.device_ = device;
  made.current_ = reader;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes the number in a pointer
  void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  BASCULE_CUDA_DRIVER(functions->mem_import(&made.handle_, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  made.bytes_ = bytes;
  return made;
}

Allocation::~Allocation() {
  if (bytes_ == 0) return;
  const DeviceGuard guard(current_);
  keep_error(guard.result());
  if (const absl::StatusOr<const Driver*> functions = driver(); functions.ok())
    keep_error(BASCULE_CUDA_CODE((*functions)->mem_release(handle_)));
}

absl::StatusOr<UniqueFd> Allocation::export_descriptor() const {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const DeviceGuard guard(current_);
  BASCULE_TRY(cuda_status(guard.result()));
  int fd = -1;
  BASCULE_CUDA_DRIVER(functions->mem_export(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  UniqueFd made(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return errno_status(errno, "close an exported descriptor on exec");
  return made;
}

absl::StatusOr<DeviceMapping> DeviceMapping::map(const Allocation& allocation, Access access, int device) {
  return map({&allocation, 1}, access, device);
}

absl::StatusOr<DeviceMapping> DeviceMapping::map(std::span<const Allocation> allocations, Access access, int device) {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  BASCULE_CUDA(cudaFree(nullptr));
  std::uint64_t bytes = 0;
  for (const Allocation& allocation : allocations) {
    if (device != allocation.device() && !can_reach(device, allocation.device()))
      return unimplemented("device ", device, " cannot reach the memory of device ", allocation.device(),
                           " (no NVLink or PCIe peer access between them)");
    bytes += allocation.bytes();
  }
  CUdeviceptr address = 0;
  BASCULE_CUDA_DRIVER(functions->mem_address_reserve(&address, bytes, 0, 0, 0));
  DeviceMapping made;  // it now releases everything
  made.address_ = address;
  made.bytes_ = bytes;
  made.device_ = device;
  CUmemAccessDesc may{};
  may.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  may.flags = access == Access::kReadOnly ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (const Allocation& allocation : allocations) {
    BASCULE_TRY(annotate(
        cuda_status(BASCULE_CUDA_CODE(functions->mem_map(address, allocation.bytes(), 0, allocation.handle(), 0))),
        "map device memory (is it as large as the other end says?)"));
    made.mapped_.push_back(allocation.bytes());
    BASCULE_CUDA_DRIVER(functions->mem_set_access(address, allocation.bytes(), &may, 1));
    address += allocation.bytes();
  }
  return made;
}

DeviceMapping::~DeviceMapping() {
  if (address_ == 0) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  const absl::StatusOr<const Driver*> functions = driver();
  if (!functions.ok()) return;
  CUdeviceptr at = address_;
  for (const std::uint64_t bytes : mapped_) {
    kernels::cuda::CudaResult unmapped = BASCULE_CUDA_CODE((*functions)->mem_unmap(at, bytes));
    if (unmapped.code == CUDA_ERROR_CONTEXT_IS_DESTROYED) {  // the device was reset: this memory belongs to no context
      (void)kernels::cuda::clear_error_of(cudaFree(nullptr));
      unmapped = BASCULE_CUDA_CODE((*functions)->mem_unmap(at, bytes));
    }
    keep_error(unmapped);
    at += bytes;
  }
  keep_error(BASCULE_CUDA_CODE((*functions)->mem_address_free(address_, bytes_)));
}

}  // namespace bascule::inline v0::cuda
