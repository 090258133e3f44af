// A request to an engine, and its answer, as the JSON of /v1/completions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct RolloutRequest {
  const Problem* problem = nullptr;       // must outlive the request
  std::vector<std::int64_t> prompt = {};  // token ids
  int completions = 1;                    // sampled independently
  std::int64_t max_tokens = 16;
  double temperature = 1;
  std::int64_t top_k = 0;  // the likeliest tokens that may be sampled; 0: all
  double top_p = 1;        // the likeliest tokens that together have this probability; 1: all
  double min_p = 0;        // tokens that have this share of the likeliest one's probability, or more; 0: all
  std::uint64_t seed = 0;
};

// `model`: the name of an adapter; empty: the base model.
std::string to_json(const RolloutRequest& request, std::string_view model = {});

// Returns the completions of an answer with status 200: token ids, log-probabilities, versions and finish reason, but
// no text. If one of these is missing, or differs from the tokens in number, the error names it: the server is not a
// Bascule engine.
absl::StatusOr<std::vector<Rollout>> read_rollouts(std::string_view body);

}  // namespace bascule::ref
