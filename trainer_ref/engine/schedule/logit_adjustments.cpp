#include <bascule/trainer_ref/engine/schedule/logit_adjustments.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bascule::ref {
namespace {

// How a token is in a sequence.
struct Seen {
  bool in_prompt = false;
  std::int32_t count = 0;  // in the completion
};

// Each operation rounds as the kernel's does.
float penalized(float x, Seen seen, const LogitAdjustments& adjustments) {
  if (!seen.in_prompt && seen.count == 0) return x;
  x = x > 0 ? x / adjustments.repetition_penalty : x * adjustments.repetition_penalty;
  x = std::fma(-adjustments.frequency_penalty, static_cast<float>(seen.count), x);
  return seen.count > 0 ? x - adjustments.presence_penalty : x;
}

}  // namespace

std::span<const TokenBias> LogitAdjustments::biases(std::uint64_t generated) const {
  const std::shared_ptr<const TokenBiases>& now =
      generated < static_cast<std::uint64_t>(min_tokens) ? early_bias : bias;
  return now ? std::span(*now) : std::span<const TokenBias>();
}

TokenBiases forbid(TokenBiases bias, std::vector<std::int64_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  std::erase_if(bias,
                [&](const TokenBias& each) { return std::binary_search(tokens.begin(), tokens.end(), each.token); });
  for (const std::int64_t token : tokens)
    bias.push_back({static_cast<std::int32_t>(token), -std::numeric_limits<float>::infinity()});
  std::sort(bias.begin(), bias.end(), [](const TokenBias& a, const TokenBias& b) { return a.token < b.token; });
  return bias;
}

void adjust(std::span<float> logits, const LogitAdjustments& adjustments, std::span<const std::int64_t> prompt,
            std::span<const std::int64_t> completion) {
  for (const auto& [token, bias] : adjustments.biases(completion.size()))
    logits[static_cast<std::size_t>(token)] += bias;
  if (!adjustments.penalizes()) return;
  std::vector<Seen> seen(logits.size());
  for (const std::int64_t token : prompt) seen[static_cast<std::size_t>(token)].in_prompt = true;
  for (const std::int64_t token : completion) ++seen[static_cast<std::size_t>(token)].count;
  for (std::size_t id = 0; id < logits.size(); ++id) logits[id] = penalized(logits[id], seen[id], adjustments);
}

}  // namespace bascule::ref
