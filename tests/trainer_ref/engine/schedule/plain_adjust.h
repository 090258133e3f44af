// What a request's adjustments make of logits, in the plainest way: token by token, as vLLM documents it, in float64.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/logit_adjustments.h>

namespace bascule::ref {

// What a test's request asks for.
struct PlainAdjustments {
  double repetition = 1, presence = 0, frequency = 0;
  std::map<std::int64_t, double> bias = {};
  std::int64_t min_tokens = 0;
  std::vector<std::int64_t> ends = {};

  LogitAdjustments made() const {
    LogitAdjustments adjustments{.repetition_penalty = static_cast<float>(repetition),
                                 .presence_penalty = static_cast<float>(presence),
                                 .frequency_penalty = static_cast<float>(frequency),
                                 .min_tokens = min_tokens};
    TokenBiases list;
    for (const auto& [token, value] : bias)
      list.push_back({static_cast<std::int32_t>(token), static_cast<float>(value)});
    adjustments.bias = std::make_shared<const TokenBiases>(list);
    adjustments.early_bias = std::make_shared<const TokenBiases>(forbid(list, ends));
    return adjustments;
  }

  std::vector<double> of(std::span<const float> logits, std::span<const std::int64_t> prompt,
                         std::span<const std::int64_t> completion) const {
    std::vector<double> adjusted;
    for (std::int64_t id = 0; id < static_cast<std::int64_t>(logits.size()); ++id) {
      double x = logits[static_cast<std::size_t>(id)];
      if (const auto found = bias.find(id); found != bias.end()) x += found->second;
      if (static_cast<std::int64_t>(completion.size()) < min_tokens && std::count(ends.begin(), ends.end(), id) > 0)
        x = -std::numeric_limits<double>::infinity();
      const auto times = static_cast<double>(std::count(completion.begin(), completion.end(), id));
      const bool in_prompt = std::count(prompt.begin(), prompt.end(), id) > 0;
      if (in_prompt || times > 0) x = x > 0 ? x / repetition : x * repetition;
      x -= frequency * times;
      if (times > 0) x -= presence;
      adjusted.push_back(x);
    }
    return adjusted;
  }
};

}  // namespace bascule::ref
