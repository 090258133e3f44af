// Statistics of a step's completions, from the engines' answers.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <bascule/trainer_ref/grpo/rollout/request_queue.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>

namespace bascule::ref {

// Each engine's work with each version; `seconds` converts the times.
std::vector<EngineSpan> engine_spans(const std::vector<Generation>& generations, const std::vector<std::string>& urls,
                                     const std::function<double(std::chrono::steady_clock::time_point)>& seconds);

// The time from when 90% of the requests were answered to the last answer; 0 without answers.
double tail_seconds(const std::vector<Generation>& generations);

}  // namespace bascule::ref
