// The driver: runs scenarios over schemes, one after the other, and says on stderr how far it is.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/options.h>
#include <bascule/bench/record.h>

namespace bascule::bench {

// Everything that --scenario and --sync ask for. A scenario that failed (a worker served wrong bytes, a send came to
// nothing) leaves a row that says so, and the rest is measured all the same. `folders`: an empty one for each of
// options.sync; the caller removes them.
absl::StatusOr<Results> run_all(const Options& options, const std::vector<std::filesystem::path>& folders);

// The first such row's scheme, scenario and reason; empty where there is none.
std::string failure_of(const Results& results);

}  // namespace bascule::bench
