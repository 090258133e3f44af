// Small owners for what the kernels keep between calls: tables in device memory, words in pinned host memory. Each
// knows its device and the life that it was made in (cuda_life.h); the memory of slots and tensors is others'.
//
// cudaFree and cudaFreeHost wait for the device: plans are made when a worker joins and go when it leaves, never
// between. Errors of destructors are kept (cuda_result.h).
#pragma once

#include <cstddef>
#include <utility>

#include <bascule/kernels/cuda_life.h>
#include <bascule/kernels/cuda_result.h>

namespace bascule::inline v0::kernels::cuda {

// Of the calling thread, which belongs to Bascule alone: it has no device of its own. To go back to device 0, where it
// began, would make a context there, some hundred MB on what may be another process's GPU (since CUDA 12 cudaSetDevice
// makes one); so its guards leave it on their device.
void own_thread_of_devices();

// Makes `device` and a context of it current for a scope, and afterwards the device that was. In the scope this thread
// may query events, allocate and free while another one captures a graph, in whatever mode (CUDA's relaxed capture
// mode, of this thread alone): neither disturbs the other. What is enqueued on a stream that is captured is another
// matter: see check_stream() of transport/device.h.
//
// A guard within one of the same device costs nothing.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const CudaResult& result() const { return result_; }  // an error: `device` is not current

 private:
  int before_ = -1;       // the device to go back to; -1: none
  int mode_ = -1;         // the capture mode to go back to; -1: none
  bool entered_ = false;  // it is the innermost one that did something
  int outer_ = -1;        // the device of the one around it; -1: none
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
