// The driver's functions that the runtime does not have, looked up when they are first asked for: nothing links
// libcuda, so that a program runs where there is no driver.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"

namespace bascule::cuda {

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
};

// The same at every call. UNAVAILABLE: no driver, or one without these functions. Any thread.
absl::StatusOr<const Driver*> driver();

}  // namespace bascule::cuda
