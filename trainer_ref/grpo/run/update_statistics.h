// What an update of the policy tells of itself. No tensors here: metrics and their readers know no LibTorch.
#pragma once

#include <cstdint>
#include <limits>

namespace bascule::ref {

// Means over the mini-batches, in all passes, but those that were skipped; NaN where there is none, or where it was not
// measured.
struct UpdateStatistics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double loss = kNone;
  double kl = kNone;                 // per token, from the reference
  double entropy = kNone;            // per token, of the policy before each of them, in nats
  double clip_fraction = kNone;      // of tokens
  double importance_mean = kNone;    // π_old/π_behaviour of a token, capped
  double importance_capped = kNone;  // share of tokens whose weight was more than the cap
  double masked = kNone;             // share of completions that are masked for their divergence
  double grad_norm = kNone;          // before clipping
  double learning_rate = kNone;      // of the last step that changed the weights
  std::int64_t updates = 0;          // optimizer steps that changed the weights
  std::int64_t skipped = 0;          // those whose loss or gradient was not finite: they changed nothing
  std::int64_t tokens = 0;           // of prompts and completions that went through the model
};

}  // namespace bascule::ref
