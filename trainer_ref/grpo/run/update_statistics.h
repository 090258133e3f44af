// Statistics of an update of the policy. They have no tensors, so that metrics do not need LibTorch.
#pragma once

#include <cstdint>
#include <limits>

namespace bascule::ref {

// Means over the mini-batches that were not skipped, in all passes; NaN if there are none or the value was not
// measured.
struct UpdateStatistics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double loss = kNone;
  double kl = kNone;                 // per token, from the reference
  double entropy = kNone;            // per token, of the policy's distribution for it, in nats
  double clip_fraction = kNone;      // of tokens
  double importance_mean = kNone;    // π_old/π_behaviour of a token, capped
  double importance_capped = kNone;  // share of tokens whose weight was more than the cap
  double masked = kNone;             // share of completions masked by off_policy_mask
  double grad_norm = kNone;          // before clipping
  double learning_rate = kNone;      // of the last optimizer step that changed the weights
  std::int64_t updates = 0;          // optimizer steps that changed the weights
  std::int64_t skipped = 0;  // optimizer steps that changed nothing, since their loss or gradient was not finite
  std::int64_t tokens = 0;   // of prompts and completions, that went through the model
};

}  // namespace bascule::ref
