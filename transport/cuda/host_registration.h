// HostRegistration: while one exists for some host memory, a device copies from and to that memory at full PCIe speed.
//
// Registering takes about half a second per GiB the first time, and brings all pages into memory, so do it when a
// worker joins, not during a send. The mapping must outlive the registration. Memfds can be registered; files on a disk
// only for reading. Move-only; a moved-from one is empty. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include <bascule/kernels/cuda_life.h>
#include <bascule/transport/posix/mapping.h>

namespace bascule::inline v0::cuda {

class HostRegistration {
 public:
  // kReadOnly is for memory that is mapped read-only in this process: devices may read it, and a copy into it is
  // refused. Returns UNIMPLEMENTED if this device cannot register read-only memory, and FAILED_PRECONDITION if part of
  // `bytes` is registered already.
  static absl::StatusOr<HostRegistration> make(int device, std::span<const std::byte> bytes, Access access);

  HostRegistration() = default;
  HostRegistration(HostRegistration&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), life_(std::move(other.life_)) {}
  HostRegistration& operator=(HostRegistration&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(life_, other.life_);
    return *this;
  }
  ~HostRegistration();

  int device() const { return life_.device(); }

 private:
  void* data_ = nullptr;
  kernels::cuda::DeviceLife life_;
};

}  // namespace bascule::inline v0::cuda
