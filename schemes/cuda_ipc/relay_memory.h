// A GPU as a relay receiver uses it: receive buffers are memory that other processes map, as slots are.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/schemes/relay/relay_memory.h>

namespace bascule::inline v0 {

// UNAVAILABLE: there is no such GPU. UNIMPLEMENTED: it exports no memory.
absl::StatusOr<relay::RelayMemory> relay_memory(int device);

}  // namespace bascule::inline v0
