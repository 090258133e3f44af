#include <bascule/bench/statistics.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace bascule::bench {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - std::floor(at));
}

double resampled_median(std::span<const double> values, std::vector<double>& space, std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> any(0, values.size() - 1);
  space.clear();
  for (std::size_t i = 0; i < values.size(); ++i) space.push_back(values[any(random)]);
  std::ranges::sort(space);
  return quantile_of_sorted(space, 0.5);
}

}  // namespace

double quantile(std::span<const double> values, double q) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return quantile_of_sorted(sorted, q);
}

Summary summarise(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return {.samples = sorted.size(),
          .p50 = quantile_of_sorted(sorted, 0.5),
          .p90 = quantile_of_sorted(sorted, 0.9),
          .p99 = quantile_of_sorted(sorted, 0.99),
          .min = quantile_of_sorted(sorted, 0)};
}

Interval ratio_of_medians(std::span<const double> above, std::span<const double> below, std::uint64_t seed) {
  if (above.empty() || below.empty()) return {};
  constexpr int kResamplings = 1000;
  std::mt19937_64 random(seed);
  std::vector<double> ratios, space;
  ratios.reserve(kResamplings);
  for (int i = 0; i < kResamplings; ++i) {
    const double numerator = resampled_median(above, space, random);
    ratios.push_back(numerator / resampled_median(below, space, random));
  }
  return {.low = quantile(ratios, 0.025), .high = quantile(ratios, 0.975)};
}

}  // namespace bascule::bench
