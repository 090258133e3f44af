// Driver functions that Bascule calls directly, either because the runtime lacks them, or because the runtime would
// remember their errors and so replace the user's last error. They are looked up on first use. Nothing links libcuda,
// so programs also run without a driver.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"

namespace bascule::inline v0::cuda {

struct Driver {
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&::cuMemImportFromShareableHandle) mem_import = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_granularity = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
  decltype(&::cuPointerGetAttributes) pointer_attributes = nullptr;
  decltype(&::cuMemHostRegister) host_register = nullptr;
  decltype(&::cuMemHostUnregister) host_unregister = nullptr;
  decltype(&::cuEventQuery) event_query = nullptr;
  decltype(&::cuStreamQuery) stream_query = nullptr;
  decltype(&::cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&::cuStreamGetCtx) stream_context = nullptr;
  decltype(&::cuCtxGetCurrent) current_context = nullptr;
  decltype(&::cuCtxPushCurrent) push_context = nullptr;
  decltype(&::cuCtxPopCurrent) pop_context = nullptr;
  decltype(&::cuCtxGetDevice) context_device = nullptr;
};

// Returns the functions, the same at every call, or UNAVAILABLE if there is no driver, or one that lacks any of them.
// Any thread.
absl::StatusOr<const Driver*> driver();

}  // namespace bascule::inline v0::cuda
