// Statistics of repeated measurements: percentiles, and the confidence interval of a ratio of medians.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bascule::bench {

// Returns the quantile `q`, from 0 to 1, interpolated linearly between neighbours in order (Hyndman and Fan's type 7,
// NumPy's default); 0 if there are no values.
double quantile(std::span<const double> values, double q);

struct Summary {
  std::size_t samples = 0;
  double p50 = 0, p90 = 0, p99 = 0, min = 0;
};
Summary summarise(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;
};
// Returns the interval that holds median(above) / median(below) in 95 of 100 resamplings with replacement, chosen by
// `seed`.
Interval ratio_of_medians(std::span<const double> above, std::span<const double> below, std::uint64_t seed);

}  // namespace bascule::bench
