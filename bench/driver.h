// The driver: runs scenarios over schemes, one after the other, and reports progress on stderr.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/options.h>
#include <bascule/bench/record.h>

namespace bascule::bench {

// Runs everything that --scenario and --sync ask for. A scenario that fails (wrong bytes at a worker, a failed send)
// leaves a row that says so, and the others still run. `folders` has an empty folder for each of options.sync; the
// caller removes them.
absl::StatusOr<Results> run_all(const Options& options, const std::vector<std::filesystem::path>& folders);

// Returns the scheme, scenario and reason of the first failed row; empty if none failed.
std::string failure_of(const Results& results);

}  // namespace bascule::bench
