// What a step's completions took, of what the engines answered.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <bascule/trainer_ref/grpo/rollout/request_queue.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>

namespace bascule::ref {

// What each engine generated with each version, times as `seconds` counts them.
std::vector<EngineSpan> engine_spans(const std::vector<Generation>& generations, const std::vector<std::string>& urls,
                                     const std::function<double(std::chrono::steady_clock::time_point)>& seconds);

// From the answer with which nine requests in ten were answered to the last one; 0 without answers.
double tail_seconds(const std::vector<Generation>& generations);

}  // namespace bascule::ref
