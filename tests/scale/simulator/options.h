// What the command line asks for: one run for each route and each number of engines.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/outcome.h"

namespace bascule::simulator {

struct Options {
  std::vector<Settings> runs;
  std::string json;
};

// From the flags, checked. INVALID_ARGUMENT says which flag, what it was and what would do.
absl::StatusOr<Options> options_from_flags();

}  // namespace bascule::simulator
