// The least work that an update needs, computed from its shape: operations, and the bytes of its parts.
#pragma once

#include <cstdint>
#include <optional>

#include <bascule/trainer_ref/grpo/learn/memory_plan.h>
#include <bascule/trainer_ref/grpo/learn/trial_update.h>

namespace bascule::bench {

// Operations of one update by the usual count: six for each weight and token that it multiplies (two in the forward
// pass, four in the backward pass; a frozen weight has no gradient, so two there), plus causal attention. Recomputing
// checkpointed layers does not count.
double operations_of(const ref::TrialShape& shape);

ref::MemoryPlan plan_of(const ref::TrialShape& shape);

// Returns the most memory on a GPU that the log-probabilities of a whole update take in forward and backward pass, in
// addition to hidden states, weights and their gradients; nullopt on a CPU.
std::optional<std::int64_t> log_probs_bytes(const ref::TrialShape& shape);

}  // namespace bascule::bench
