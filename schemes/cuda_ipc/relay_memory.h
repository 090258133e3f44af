// A GPU's memory for a relay receiver. Other processes can map its receive buffers, like slots.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/schemes/relay/relay_memory.h>

namespace bascule::inline v0 {

// Returns UNAVAILABLE if there is no such GPU, UNIMPLEMENTED if the GPU cannot export memory.
absl::StatusOr<relay::RelayMemory> relay_memory(int device);

}  // namespace bascule::inline v0
