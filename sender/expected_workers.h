// ExpectedWorkers: who should serve each version that is sent to all workers.
#pragma once

#include <string>
#include <vector>

namespace bascule::inline v0 {

// A version that fewer workers serve is published all the same, but its report is not complete.
struct ExpectedWorkers {
  int count = 1;                     // at least so many workers; every rank of a group counts
  std::vector<std::string> names{};  // of workers, or of groups for all their ranks
};

}  // namespace bascule::inline v0
