#include "transport/cuda/host_registration.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda_memory.h"
#include "transport/cuda/status.h"
#include "transport/text.h"

namespace bascule::cuda {

using kernels::cuda::DeviceGuard;
using kernels::cuda::keep_error;

absl::StatusOr<HostRegistration> HostRegistration::make(int device, std::span<const std::byte> bytes, Access access) {
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (access == Access::kReadOnly) {
    int can = 0;
    BASCULE_CUDA(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, device));
    if (can == 0)
      return unimplemented("device ", device, " registers no read-only host memory; copy it through pinned buffers");
    flags |= cudaHostRegisterReadOnly;
  }
  HostRegistration made;
  made.device_ = device;
  void* const data = const_cast<std::byte*>(bytes.data());  // with kReadOnly it stays as it is
  const kernels::cuda::CudaResult result = BASCULE_CUDA_RESULT(cudaHostRegister(data, bytes.size(), flags));
  if (result.code == cudaErrorHostMemoryAlreadyRegistered) {
    (void)cudaGetLastError();
    return failed_precondition("part of ", bytes.size(), " bytes of host memory is registered with CUDA already");
  }
  if (!result.ok()) return annotate(cuda_status(result), cat("register ", bytes.size(), " bytes of host memory"));
  made.data_ = data;
  return made;
}

HostRegistration::~HostRegistration() {
  if (data_ == nullptr) return;
  const DeviceGuard guard(device_);
  keep_error(guard.result());
  keep_error(BASCULE_CUDA_RESULT(cudaHostUnregister(data_)));
}

absl::StatusOr<std::byte*> HostRegistration::device_address() const {
  const DeviceGuard guard(device_);
  BASCULE_TRY(cuda_status(guard.result()));
  void* address = nullptr;
  BASCULE_CUDA(cudaHostGetDevicePointer(&address, data_, 0));
  return static_cast<std::byte*>(address);
}

}  // namespace bascule::cuda
