// The options of the command line: one run for each route and each number of engines.
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

// The checked options. INVALID_ARGUMENT names the flag, its value and a valid one.
absl::StatusOr<Options> options_from_flags();

}  // namespace bascule::simulator
