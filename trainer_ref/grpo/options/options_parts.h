// The parts that options_from_flags() is made of, a file a topic. Each takes its flags into `options`, and checks them
// against one another and against what the parts before it have taken. INVALID_ARGUMENT names the flag.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/options/options.h>

namespace bascule::ref {

// Beyond these no run makes sense. They also keep each number finite as a float, and each product in 64 bits.
inline constexpr int kMostCompletions = 65'536;  // of a problem: an engine's --max-batch ends there
inline constexpr std::int64_t kMostProblems = 1'000'000, kMostTokens = 1 << 20, kMostIterations = 1000;
inline constexpr double kMostOfANumber = 1e6;

absl::Status engines_from_flags(TrainOptions& options);   // of options.spawn, supervised and dry_run
absl::Status rollouts_from_flags(TrainOptions& options);  // of options.task
absl::Status update_from_flags(TrainOptions& options);    // of options.max_tokens

// Opens --device, which takes seconds, and refuses a --sync that does not reach it; before it, where that can be told.
absl::Status device_from_flags(TrainOptions& options, const std::function<void(std::string_view)>& log);

}  // namespace bascule::ref
