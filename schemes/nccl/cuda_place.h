// The place of nccl on a GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/place.h>

namespace bascule::inline v0::nccl {

// Returns the place of `device`. Network cards can reach the place's memory if the device supports that. Returns
// UNIMPLEMENTED, saying what to use, if `device` is the host, and UNAVAILABLE if there is no such device.
absl::StatusOr<std::shared_ptr<Place>> cuda_place(int device);

}  // namespace bascule::inline v0::nccl
