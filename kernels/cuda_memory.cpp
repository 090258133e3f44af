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

}  // namespace

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
  if (!result_.ok() || before_ == device) {
    before_ = -1;
    return;
  }
  result_ = BASCULE_CUDA_RESULT(cudaSetDevice(device));
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
