// Compares two runs: which rows became faster, which slower, and for which the noise is too large to say.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/bench/record.h>

namespace bascule::bench {

// Returns a table of the ratios of `after`'s medians to `before`'s, each with the interval that holds it in 95 of 100
// resamplings by `seed`. Records are matched by scheme, scenario and sizes. If `before` lacks a scheme of `after`, that
// scheme's records are compared with every scheme in `before`. Records without a partner are named. Returns
// FAILED_PRECONDITION if the machines differ; the text says how.
absl::StatusOr<std::string> compare(const Results& before, const Results& after, std::uint64_t seed);

}  // namespace bascule::bench
