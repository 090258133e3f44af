#include <bascule/trainer_ref/engine/schedule/sampler.h>

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

// Leaves in `ids` what min_p, top_k and top_p keep, in falling order of weight if the latter two cut. Returns the kept
// weight. The largest weight is 1.
double cut(const std::vector<double>& weights, const SamplingParams& params, std::vector<std::size_t>& ids,
           double total) {
  if (params.min_p > 0) {
    std::erase_if(ids, [&](std::size_t id) { return weights[id] < params.min_p; });
    total = std::accumulate(ids.begin(), ids.end(), 0.0, [&](double sum, std::size_t id) { return sum + weights[id]; });
  }
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

double inverse_of(const SamplingParams& params) {
  return params.temperature < kGreedyBelow ? 1 : 1 / params.temperature;
}

// log softmax(logits / temperature).
struct LogSoftmax {
  double highest, inverse_temperature, log_total;
  double of(float logit) const { return (logit - highest) * inverse_temperature - log_total; }
};

double total_weight(std::span<const float> logits, double highest, double inverse_temperature) {
  double total = 0;
  for (const float logit : logits) total += std::exp((logit - highest) * inverse_temperature);
  return total;
}

double highest_of(std::span<const float> logits) { return *std::max_element(logits.begin(), logits.end()); }

// Normalizes log-probabilities in the mode that `params` name.
LogSoftmax log_softmax(std::span<const float> logits, const SamplingParams& params) {
  const double highest = highest_of(logits);
  const double inverse = params.logprobs == LogprobsMode::kProcessed ? inverse_of(params) : 1;
  return {highest, inverse, std::log(total_weight(logits, highest, inverse))};
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, const LogSoftmax& log_softmax, std::int64_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  const auto kept = std::min(static_cast<std::ptrdiff_t>(count), static_cast<std::ptrdiff_t>(ids.size()));
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(),
                    [&](std::int64_t a, std::int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<TokenLogprob> top;
  top.reserve(static_cast<std::size_t>(kept));
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    const std::int64_t id = ids[static_cast<std::size_t>(i)];
    top.push_back({id, log_softmax.of(logit(id)), i + 1});
  }
  return top;
}

Sample sample_of(std::span<const float> logits, std::size_t id, const LogSoftmax& log_softmax, std::int64_t count,
                 bool ranked) {
  Sample sample{static_cast<std::int64_t>(id), log_softmax.of(logits[id])};
  if (ranked)
    sample.rank = 1 + std::count_if(logits.begin(), logits.end(), [&](float logit) { return logit > logits[id]; });
  if (count > 0) sample.top = likeliest(logits, log_softmax, count);
  return sample;
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t choice, std::uint64_t position) {
  const std::uint64_t bits = mix(mix(mix(seed) + choice) + position);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::optional<Sample> sample(std::span<const float> logits, std::span<const float> raw, const SamplingParams& params,
                             double draw) {
  const auto top = std::max_element(logits.begin(), logits.end());
  const double highest = *top;
  if (!std::isfinite(highest)) return std::nullopt;
  const bool greedy = params.temperature < kGreedyBelow;
  const double inverse_temperature = inverse_of(params);
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - highest) * inverse_temperature); };

  std::vector<double> weights(logits.size());  // unnormalised probabilities
  double total = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) total += weights[id] = weight(id);
  if (!std::isfinite(total)) return std::nullopt;
  const auto chosen = [&](std::size_t id) {
    const bool is_raw = params.logprobs == LogprobsMode::kRaw;
    const bool is_known = !is_raw || (inverse_temperature == 1 && raw.data() == logits.data());
    const LogSoftmax normalized =
        is_known ? LogSoftmax{highest, inverse_temperature, std::log(total)} : log_softmax(raw, params);
    return sample_of(is_raw ? raw : logits, id, normalized, params.top_logprobs, params.top_logprobs > 0);
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
  // Rounding left a remainder: returns the last token that can be drawn at all.
  for (std::size_t i = ids.size(); i-- > 0;)
    if (weights[ids[i]] > 0) return chosen(ids[i]);
  return std::nullopt;
}

std::optional<Sample> score(std::span<const float> logits, std::int64_t token, const SamplingParams& params,
                            std::int64_t count) {
  const LogSoftmax normalized = log_softmax(logits, params);
  if (!std::isfinite(normalized.highest) || !std::isfinite(normalized.log_total)) return std::nullopt;
  return sample_of(logits, static_cast<std::size_t>(token), normalized, count, true);
}

}  // namespace bascule::ref
