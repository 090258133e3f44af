// A GPU as a station of a relay sees it: receive buffers are memory that other processes map, as slots are.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/schemes/relay/ground.h>

namespace bascule::inline v0 {

// UNAVAILABLE: there is no such GPU. UNIMPLEMENTED: it exports no memory.
absl::StatusOr<relay::Ground> relay_ground(int device);

}  // namespace bascule::inline v0
