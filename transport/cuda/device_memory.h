// Device memory that other processes can map: allocations without an address (cuMemCreate), which travel as POSIX
// descriptors, and their mappings, on the same device or on a peer GPU.
//
//   trainer                                            engine
//   Allocation::make(device, n)                        Allocation::import(device, fd, n, its device)
//     ├── DeviceMapping::map(allocation, kReadWrite)     └── DeviceMapping::map(allocation, kReadOnly, its device)
//     └── export_descriptor() ══ SCM_RIGHTS ══════▶
//
// The memory is freed with the last of its allocations (including imported ones) and mappings in any process, even if a
// process is killed; allocation and mapping may be destroyed in any order. Move-only; a moved-from object is empty.
// Freeing and mapping may wait for the device, so do both only when a worker joins or leaves. Any thread, one at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0::cuda {

// Whether network cards should be able to reach the memory, if the device supports it (GPUDirect RDMA). This cannot be
// changed after allocation.
enum class ForNetwork { kNo, kYes };

class Allocation {
 public:
  // Allocates `bytes` on `device`, rounded up to its granularity (2 MiB on the GPUs tried). Returns RESOURCE_EXHAUSTED
  // if the device has less free memory, and UNIMPLEMENTED if it cannot export memory.
  static absl::StatusOr<Allocation> make(int device, std::uint64_t bytes, ForNetwork network = ForNetwork::kNo);
  // Imports a descriptor that export_descriptor() made in this or another process. `bytes` is the exporter's bytes().
  // `device` is where the memory lies, in this process's numbering (find_device() of the exporter's UUID); `reader` is
  // the device that will map the memory, either `device` or a peer GPU. The driver is called in the reader's
  // context, so that a reader on another GPU creates no context on `device`. The descriptor may be closed afterwards.
  // Returns INVALID_ARGUMENT if `fd` is not such a descriptor, or `bytes` is not a whole number of granules.
  static absl::StatusOr<Allocation> import(int device, int fd, std::uint64_t bytes, int reader);

  Allocation() = default;
  Allocation(Allocation&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)),
        bytes_(std::exchange(other.bytes_, 0)),
        device_(other.device_),
        current_(other.current_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(current_, other.current_);
    return *this;
  }
  ~Allocation();

  std::uint64_t bytes() const { return bytes_; }  // whole granules
  int device() const { return device_; }
  unsigned long long handle() const { return handle_; }

  // Returns a descriptor, closed on exec, that keeps the memory allocated while it is open.
  absl::StatusOr<UniqueFd> export_descriptor() const;

 private:
  unsigned long long handle_ = 0;  // CUmemGenericAllocationHandle
  std::uint64_t bytes_ = 0;
  int device_ = -1;
  int current_ = -1;  // the device whose context is current in driver calls
};

// An address at which a device sees an allocation.
class DeviceMapping {
 public:
  // Maps all of `allocation` for kernels and copies on `device`. If they write to a kReadOnly mapping, they fail with
  // an illegal address, which is a sticky error. Returns UNIMPLEMENTED if `device` is not the allocation's device and
  // cannot reach it.
  static absl::StatusOr<DeviceMapping> map(const Allocation& allocation, Access access, int device);
  // Maps several allocations, each of whole granules and possibly of several devices, one after the other.
  static absl::StatusOr<DeviceMapping> map(std::span<const Allocation> allocations, Access access, int device);

  DeviceMapping() = default;
  DeviceMapping(DeviceMapping&& other) noexcept
      : address_(std::exchange(other.address_, 0)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_(std::exchange(other.mapped_, {})),
        device_(other.device_) {}
  DeviceMapping& operator=(DeviceMapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~DeviceMapping();

  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::uint64_t bytes() const { return bytes_; }
  int device() const { return device_; }  // the device on which data() is valid

 private:
  unsigned long long address_ = 0;  // CUdeviceptr
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> mapped_{};  // the sizes of the allocations that are mapped there
  int device_ = -1;
};

}  // namespace bascule::inline v0::cuda
