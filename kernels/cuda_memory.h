// Small owners of the memory that kernels keep between calls: tables in device memory, words in pinned host memory.
// Each knows its device and the life that it was made in (cuda_life.h). Slots and tensors have other owners.
//
// cudaFree and cudaFreeHost wait for the device, so plans are made when a worker joins and freed when it leaves, never
// in between. Errors of destructors are kept (cuda_result.h).
#pragma once

#include <cstddef>
#include <utility>

#include <bascule/kernels/cuda_life.h>
#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::kernels::cuda {

// Declares that the calling thread belongs to Bascule, so that a DeviceGuard on it does not restore the previous
// device. The previous device is usually device 0, on which every thread starts. Since CUDA 12, cudaSetDevice(0)
// creates a context there, which takes some hundred MB on a GPU that another process may use.
void own_thread_of_devices();

// Makes `device` and its context current for a scope, and then restores the previous device (except on Bascule's own
// threads, see above). The guard also sets CUDA's relaxed capture mode for this thread, so that it may query events,
// allocate and free in the scope even while another thread captures a graph in any mode. This does not allow work on a
// captured stream: see check_stream() of transport/device.h.
//
// A guard inside another one of the same device costs nothing.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const CudaResult& result() const { return result_; }  // on an error `device` is not current

 private:
  int before_ = -1;       // the device to go back to; -1: none
  int mode_ = -1;         // the capture mode to go back to; -1: none
  bool entered_ = false;  // the constructor set something
  int outer_ = -1;        // the enclosing guard's device; -1: none
  CudaResult result_;
};

enum class MemoryKind { kDevice, kPinned };

// Uninitialised device memory, or host memory that the device reaches at the same address. A moved-from object holds
// nothing.
template <MemoryKind kKind>
class Memory {
 public:
  static CudaResult make(std::size_t bytes, Memory* made);  // on the current device; `made` must be empty

  Memory() = default;
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), life_(std::move(other.life_)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(life_, other.life_);
    return *this;
  }
  ~Memory();

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  DeviceLife life_;
};
using DeviceMemory = Memory<MemoryKind::kDevice>;
using PinnedMemory = Memory<MemoryKind::kPinned>;

}  // namespace bascule::inline v0::kernels::cuda
