// The losses of GRPO and its kin over one micro-batch of a step.
//
// Shapes: R completions of a micro-batch, M tokens of all of them, completion after completion.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace bascule::ref {

// How the losses of tokens are reduced to one number:
enum class LossKind {
  kGrpo,    // mean over the tokens of each completion, then over the step's completions (arXiv 2402.03300)
  kBnpo,    // mean over the micro-batch's tokens, then over the step's micro-batches
  kDrGrpo,  // sum over tokens, divided by (the step's completions × max_tokens): no bias to length (2503.20783)
  kDapo,    // mean over the step's tokens (2503.14476)
};
std::optional<LossKind> loss_kind_named(std::string_view name);  // "grpo", "bnpo", "dr_grpo", "dapo"

// What gets its own probability ratio:
enum class ImportanceLevel {
  kToken,     // each token
  kSequence,  // each completion: the geometric mean of its tokens' ratios (GSPO, 2507.18071, eq. 7)
};
std::optional<ImportanceLevel> importance_level_named(std::string_view name);  // "token", "sequence"

struct LossOptions {
  LossKind kind = LossKind::kGrpo;
  ImportanceLevel importance_level = ImportanceLevel::kToken;
  double epsilon_low = 0.2;    // the ratio is clipped below 1 − epsilon_low
  double epsilon_high = 0.2;   // and above 1 + epsilon_high
  double beta = 0;             // weight of the divergence from the reference
  double importance_cap = 2;   // π_old/π_behaviour is truncated here; 0: no correction
  double off_policy_mask = 0;  // δ below; 0: no completion is masked
  std::int64_t max_tokens = 1;
};

struct LossInput {
  at::Tensor log_probs;            // [M] log π_θ, with its graph
  at::Tensor old_log_probs;        // [M] log π_old: the policy before the step's first update
  at::Tensor behaviour_log_probs;  // [M] log π_behaviour: by the engines, with the version that sampled
  at::Tensor reference_log_probs;  // [M] log π_ref; undefined: no divergence is measured (beta must be 0)
  at::Tensor advantages;           // [R]
  at::Tensor completion_tokens;    // [R] in each completion, in the type of the log-probabilities
  at::Tensor row_of;               // int64 [M]: the completion of each token
};

// The step to which a micro-batch belongs.
struct StepShape {
  std::int64_t completions = 0, tokens = 0, micro_batches = 1;
};

struct Loss {
  at::Tensor value;    // scalar; the sum of its gradients over the micro-batches is the step's gradient
  double kl_sum = 0;   // Σ over tokens of D_KL, below
  double clipped = 0;  // tokens whose objective the clipping holds constant
  double weights = std::numeric_limits<double>::quiet_NaN();  // Σ over tokens of w; NaN without importance_cap
  double capped = std::numeric_limits<double>::quiet_NaN();   // tokens whose weight is the cap; NaN as above
  double masked = 0;                                          // completions
  double tokens = 0;
};

// Per token, ρ = π_θ/π_old (of the token or of its completion), w = min(π_old/π_behaviour, importance_cap):
//   −m · w · min(ρ A, clip(ρ, 1 − ε_low, 1 + ε_high) A) + β D_KL
// with D_KL = π_ref/π_θ − log(π_ref/π_θ) − 1, unbiased and never negative (Schulman's k3).
//
// m is 0 for a completion with A < 0 whose mean of log π_behaviour − log π_θ over its tokens exceeds δ, else 1: the
// policy learns nothing from wrong answers that it would no longer give (DeepSeek-V3.2, 2512.02556, eq. 9).
Loss policy_loss(const LossInput& input, const StepShape& step, const LossOptions& options);

}  // namespace bascule::ref
