// Requests to a whole engine, in this process or over HTTP: many prompts of random tokens at once, each of which
// generates the same number of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/schedule/engine.h>

namespace bascule::bench {

struct Load {
  std::int64_t requests = 256;
  std::int64_t prompt_tokens = 64, generated_tokens = 128;  // of each request
  std::int64_t vocabulary = 0;
  std::int64_t adapters = 0;  // of the engine; requests have them in turns
  std::uint64_t seed = 1;     // another seed makes other prompts, so that none is found in the cache
};

// Seconds from the first request to the last answer.
absl::StatusOr<double> time_requests(ref::Engine& engine, const Load& load);
// Measures the same over HTTP, with a separate connection per request. `url` looks like "http://127.0.0.1:8000".
absl::StatusOr<double> time_http_requests(const std::string& url, const Load& load);

// Prompt and generated tokens of a paused sequence, and tokens that the long prompt's own sequence generates.
inline constexpr std::int64_t kPausedPromptTokens = 64, kPausedTokens = 400, kBesideTokens = 8;

// While `rows` sequences generate, a prompt of `prompt_tokens` comes. Returns the longest time in seconds between two
// tokens of one of these sequences after the prompt's arrival.
absl::StatusOr<double> worst_pause_beside_prompt(ref::Engine& engine, std::int64_t rows, std::int64_t prompt_tokens,
                                                 std::int64_t vocabulary);

}  // namespace bascule::bench
