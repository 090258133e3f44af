// Small owners for what the kernels keep between calls: tables in device memory, words in pinned host memory. Each
// knows its device; the memory of slots and tensors is others'.
//
// cudaFree and cudaFreeHost wait for the device: plans are made when somebody joins and go when he leaves, never
// between. Errors of destructors are kept (cuda_result.h).
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/cuda_result.h"

namespace bascule::kernels::cuda {

// Of the calling thread, which belongs to Bascule alone: it has no device of its own. To go back to device 0, where it
// began, would make a context there, some hundred MB on what may be somebody else's GPU (since CUDA 12 cudaSetDevice
// makes one); so its guards leave it on their device. And while a thread of the user's captures a graph, in whatever
// mode, it goes on to query events and to allocate.
void own_thread_of_devices();

// Makes `device` current for a scope, and afterwards the one that was.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const CudaResult& result() const { return result_; }  // an error: `device` is not current

 private:
  int before_ = -1;
  CudaResult result_;
};

enum class MemoryKind { kDevice, kPinned };

// Bytes of device memory, or of host memory that the device can reach at the same address. Not initialised. A
// moved-from one holds nothing.
template <MemoryKind kKind>
class Memory {
 public:
  static CudaResult make(std::size_t bytes, Memory* made);  // on the current device; `made` must be empty

  Memory() = default;
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), device_(other.device_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Memory();

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  int device_ = -1;
};
using DeviceMemory = Memory<MemoryKind::kDevice>;
using PinnedMemory = Memory<MemoryKind::kPinned>;

}  // namespace bascule::kernels::cuda
