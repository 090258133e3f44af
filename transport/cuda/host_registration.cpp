#include <bascule/transport/cuda/host_registration.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/driver.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

using kernels::cuda::DeviceGuard;
using kernels::cuda::keep_error;

absl::StatusOr<HostRegistration> HostRegistration::make(int device, std::span<const std::byte> bytes, Access access) {
  BASCULE_ASSIGN(const Driver* const functions, driver());
  const DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (access == Access::kReadOnly) {
    int can = 0;
    BASCULE_CUDA(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, device));
    if (can == 0)
      return unimplemented("device ", device, " registers no read-only host memory; copy it through pinned buffers");
    flags |= CU_MEMHOSTREGISTER_READ_ONLY;
  }
  HostRegistration made;
  BASCULE_TRY(cuda_status(kernels::cuda::DeviceLife::of(device, &made.life_)));
  void* const data = const_cast<std::byte*>(bytes.data());  // with kReadOnly it is not written
  // Calls the driver, since the runtime would remember the error for a file's mapping, which a device may not write.
  const kernels::cuda::CudaResult result = BASCULE_CUDA_CODE(functions->host_register(data, bytes.size(), flags));
  if (result.code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    return failed_precondition("part of ", bytes.size(), " bytes of host memory is registered with CUDA already");
  if (!result.ok()) return annotate(cuda_status(result), cat("register ", bytes.size(), " bytes of host memory"));
  made.data_ = data;
  return made;
}

HostRegistration::~HostRegistration() {
  if (data_ == nullptr || life_.over()) return;
  const DeviceGuard guard(device());
  keep_error(guard.result());
  if (const absl::StatusOr<const Driver*> functions = driver(); functions.ok())
    keep_error(BASCULE_CUDA_CODE((*functions)->host_unregister(data_)));
}

}  // namespace bascule::inline v0::cuda
