// A batch from the API server of Atropos (atroposlib 0.4, GET /batch): groups of scored sequences, which environments
// made with the engines.
//
// Threads: any. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

// What the trainer can learn from.
struct AtroposLimits {
  std::int64_t vocab_size = 0;
  std::int64_t max_tokens = 0;  // of a sequence
  double temperature = 1;       // at which the loss computes probabilities
};

struct AtroposBatch {
  std::vector<CompletionGroup> groups;  // without a problem; each completion has its reward
  std::size_t sequences = 0;            // in the batch, before any was dropped
  std::size_t dropped = 0;
  std::vector<std::string> why = {};  // each reason once, at most 8
};

// Reads the server's answer; nullopt if it has no batch yet. A sequence is a list of token ids, with a mask (-100: not
// learned; else the token itself), a score and each token's log-probability when it was sampled. The prompt of a group
// is what all its sequences begin with and none learns.
//
// `overrides` of a sequence: {"set_advantage_to_zero": true} keeps it in the loss's means, and learns nothing from it.
// `advantages` replaces the comparison of scores; all learned tokens of a sequence must have the same.
//
// A sequence that is too long, or has nothing to learn, is dropped, and so is a whole group with an error; `why` names
// the environment and the error. Returns UNAVAILABLE if the server says that no trainer is registered, and
// INVALID_ARGUMENT if it is no answer of such a server.
absl::StatusOr<std::optional<AtroposBatch>> read_atropos_batch(std::string_view body, const AtroposLimits& limits);

}  // namespace bascule::ref
