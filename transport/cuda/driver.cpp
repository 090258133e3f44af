#include <bascule/transport/cuda/driver.h>

#include <cuda_runtime_api.h>

#include <bascule/transport/cuda/status.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

// CUDA 12.0 has all these functions.
constexpr unsigned kVersion = 12000;

template <typename Function>
absl::Status look_up(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
  BASCULE_CUDA(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &how));
  if (found == nullptr || how != cudaDriverEntryPointSuccess)
    return unavailable("the CUDA driver has no ", name, "; expected one of CUDA 12.5 or newer");
  *function = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

absl::StatusOr<Driver> look_up_all() {
  Driver driver;
  BASCULE_TRY(look_up("cuMemCreate", &driver.mem_create));
  BASCULE_TRY(look_up("cuMemRelease", &driver.mem_release));
  BASCULE_TRY(look_up("cuMemAddressReserve", &driver.mem_address_reserve));
  BASCULE_TRY(look_up("cuMemAddressFree", &driver.mem_address_free));
  BASCULE_TRY(look_up("cuMemMap", &driver.mem_map));
  BASCULE_TRY(look_up("cuMemUnmap", &driver.mem_unmap));
  BASCULE_TRY(look_up("cuMemSetAccess", &driver.mem_set_access));
  BASCULE_TRY(look_up("cuMemExportToShareableHandle", &driver.mem_export));
  BASCULE_TRY(look_up("cuMemImportFromShareableHandle", &driver.mem_import));
  BASCULE_TRY(look_up("cuMemGetAllocationGranularity", &driver.mem_granularity));
  BASCULE_TRY(look_up("cuDeviceGetAttribute", &driver.device_get_attribute));
  BASCULE_TRY(look_up("cuPointerGetAttribute", &driver.pointer_attribute));
  BASCULE_TRY(look_up("cuPointerGetAttributes", &driver.pointer_attributes));
  BASCULE_TRY(look_up("cuMemHostRegister", &driver.host_register));
  BASCULE_TRY(look_up("cuMemHostUnregister", &driver.host_unregister));
  BASCULE_TRY(look_up("cuEventQuery", &driver.event_query));
  BASCULE_TRY(look_up("cuStreamQuery", &driver.stream_query));
  BASCULE_TRY(look_up("cuStreamIsCapturing", &driver.stream_is_capturing));
  BASCULE_TRY(look_up("cuStreamGetCtx", &driver.stream_context));
  BASCULE_TRY(look_up("cuCtxGetCurrent", &driver.current_context));
  BASCULE_TRY(look_up("cuCtxPushCurrent", &driver.push_context));
  BASCULE_TRY(look_up("cuCtxPopCurrent", &driver.pop_context));
  BASCULE_TRY(look_up("cuCtxGetDevice", &driver.context_device));
  return driver;
}

}  // namespace

absl::StatusOr<const Driver*> driver() {
  static const absl::StatusOr<Driver> found = look_up_all();
  if (!found.ok()) return found.status();
  return &*found;
}

}  // namespace bascule::inline v0::cuda
