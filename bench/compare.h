// Two runs side by side: what became faster, what slower, and what the noise does not let one say.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/bench/record.h>

namespace bascule::bench {

// A table of `after`'s medians over `before`'s, each with the interval that holds it in 95 of 100 resamplings by
// `seed`. Records are matched by scheme, scenario and sizes; those of a scheme that `before` does not hold at all are
// put beside each of its schemes. Records without a partner are named. FAILED_PRECONDITION: other machines, and what
// differs.
absl::StatusOr<std::string> compare(const Results& before, const Results& after, std::uint64_t seed);

}  // namespace bascule::bench
