// The options of bascule-bench, from its flags.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/bench/options.h>

namespace bascule::bench {

// Returns the checked options. INVALID_ARGUMENT names the flag, its value and a valid one.
absl::StatusOr<Options> options_from_flags();

}  // namespace bascule::bench
