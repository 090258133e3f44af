#include "kernels/cuda_memory.h"

#include <cuda_runtime_api.h>

#include <mutex>

namespace bascule::kernels::cuda {
namespace {

struct Kept {
  std::mutex mutex;
  KeptErrors errors;
};
Kept& kept() {
  static Kept all;
  return all;
}

// Of a thread: see own_thread_of_devices().
thread_local bool is_own = false, captures_of_others_allow_all = false;

}  // namespace

void own_thread_of_devices() { is_own = true; }

void keep_error(const CudaResult& result) {
  if (result.ok()) return;
  std::lock_guard lock(kept().mutex);
  if (kept().errors.count++ == 0) kept().errors.first = result;
}

KeptErrors take_kept_errors() {
  std::lock_guard lock(kept().mutex);
  return std::exchange(kept().errors, {});
}

DeviceGuard::DeviceGuard(int device) {
  result_ = BASCULE_CUDA_RESULT(cudaGetDevice(&before_));
  const bool is_current = !result_.ok() || before_ == device;
  if (!is_current) result_ = BASCULE_CUDA_RESULT(cudaSetDevice(device));
  if (is_current || is_own) before_ = -1;
  if (!is_own || captures_of_others_allow_all || !result_.ok()) return;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  result_ = BASCULE_CUDA_RESULT(cudaThreadExchangeStreamCaptureMode(&mode));
  captures_of_others_allow_all = result_.ok();
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) keep_error(BASCULE_CUDA_RESULT(cudaSetDevice(before_)));
}

template <MemoryKind kKind>
CudaResult Memory<kKind>::make(std::size_t bytes, Memory* made) {
  Memory memory;
  BASCULE_CUDA_CHECK(cudaGetDevice(&memory.device_));
  if constexpr (kKind == MemoryKind::kDevice) {
    BASCULE_CUDA_CHECK(cudaMalloc(&memory.data_, bytes > 0 ? bytes : 1));
  } else {
    BASCULE_CUDA_CHECK(cudaHostAlloc(&memory.data_, bytes > 0 ? bytes : 1, cudaHostAllocPortable));
  }
  *made = std::move(memory);
  return {};
}

template <MemoryKind kKind>
Memory<kKind>::~Memory() {
  if (data_ == nullptr) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  if constexpr (kKind == MemoryKind::kDevice) {
    keep_error(BASCULE_CUDA_RESULT(cudaFree(data_)));
  } else {
    keep_error(BASCULE_CUDA_RESULT(cudaFreeHost(data_)));
  }
}

template class Memory<MemoryKind::kDevice>;
template class Memory<MemoryKind::kPinned>;

}  // namespace bascule::kernels::cuda
