#include <bascule/trainer_ref/engine/sampler.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace bascule::ref {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): every input bit moves every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Leaves in `ids` what top_k and top_p keep, in falling order of weight where they cut; returns the weight
// that is kept.
double cut(const std::vector<double>& weights, const SamplingParams& params, std::vector<std::size_t>& ids,
           double total) {
  const std::size_t most = params.top_k > 0 ? std::min(ids.size(), static_cast<std::size_t>(params.top_k)) : ids.size();
  if (most == ids.size() && params.top_p >= 1) return total;
  const auto falling = [&](std::size_t a, std::size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(most), ids.end(), falling);
  ids.resize(most);
  double kept = 0;
  for (const std::size_t id : ids) kept += weights[id];
  const double wanted = params.top_p * kept;
  double sum = 0;
  std::size_t count = 0;
  while (count < ids.size() && (count == 0 || sum < wanted)) sum += weights[ids[count++]];
  ids.resize(count);
  return sum;
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position) {
  const std::uint64_t bits = mix(mix(mix(seed) + choice) + position);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::optional<Sample> sample(std::span<const float> logits, const SamplingParams& params, double draw) {
  const auto top = std::max_element(logits.begin(), logits.end());
  const double highest = *top;
  if (!std::isfinite(highest)) return std::nullopt;
  const bool greedy = params.temperature < kGreedyBelow;
  const double inverse_temperature = greedy ? 1 : 1 / params.temperature;
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - highest) * inverse_temperature); };

  std::vector<double> weights(logits.size());  // unnormalised probabilities
  double total = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) total += weights[id] = weight(id);
  if (!std::isfinite(total)) return std::nullopt;
  const auto chosen = [&](std::size_t id) {
    const double logprob = (logits[id] - highest) * inverse_temperature - std::log(total);
    return Sample{static_cast<std::int64_t>(id), logprob};
  };
  if (greedy) return chosen(static_cast<std::size_t>(top - logits.begin()));

  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const double kept = cut(weights, params, ids, total);
  double left = draw * kept;
  for (const std::size_t id : ids) {
    left -= weights[id];
    if (left < 0) return chosen(id);
  }
  // Rounding left a crumb: the last token that can be drawn at all.
  for (std::size_t i = ids.size(); i-- > 0;)
    if (weights[ids[i]] > 0) return chosen(ids[i]);
  return std::nullopt;
}

}  // namespace bascule::ref
