// Compares two runs: which rows became faster, which slower, and for which the noise is too large to say.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/bench/record.h>

namespace bascule::bench {

// A table of `after`'s medians over `before`'s, each with the interval that holds it in 95 of 100 resamplings by
// `seed`. Records are matched by scheme, scenario and sizes. If `before` lacks a scheme, its records are compared with
// each scheme of `before`. Records without a partner are named. FAILED_PRECONDITION: the machines differ; the text says
// how.
absl::StatusOr<std::string> compare(const Results& before, const Results& after, std::uint64_t seed);

}  // namespace bascule::bench
