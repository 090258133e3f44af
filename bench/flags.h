// The options of bascule-bench, out of its flags.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/bench/options.h>

namespace bascule::bench {

// From the flags, checked. INVALID_ARGUMENT says which flag, what it was and what would do.
absl::StatusOr<Options> options_from_flags();

}  // namespace bascule::bench
