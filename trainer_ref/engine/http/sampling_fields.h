// Fields that decide how tokens are sampled.
#pragma once

#include "absl/status/status.h"
#include <bascule/trainer_ref/engine/http/fields.h>
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/engine/schedule/completion.h>

namespace bascule::ref {

// Reads temperature, top_k, top_p, min_p and repetition_penalty; missing ones keep their values.
void read_distribution(Fields& fields, SamplingParams& sampling);

// Reads these, the other penalties, logit_bias, min_tokens, seed and logprobs_mode.
void read_sampling(Fields& fields, const ModelCard& card, SamplingParams& sampling);

// Forbids the tokens that end a completion until it has min_tokens; as in vLLM, the model's own ones also if ignore_eos
// is set. Call it once prompts, max_tokens and stop tokens are known. INVALID_ARGUMENT if min_tokens does not fit them.
absl::Status forbid_early_ends(const ModelCard& card, CompletionRequest& request);

}  // namespace bascule::ref
