#include <bascule/trainer_ref/grpo/learn/loss.h>

namespace bascule::ref {
namespace {

at::Tensor of_tokens(const at::Tensor& of_completions, const LossInput& input) {  // [R] → [M]
  return of_completions.index_select(0, input.row_of);
}

at::Tensor mean_of_each(const at::Tensor& of_tokens, const LossInput& input) {  // [M] → [R]
  return at::zeros_like(input.completion_tokens).index_add(0, input.row_of, of_tokens) / input.completion_tokens;
}

// Which completions are masked → bool [R]
at::Tensor is_off_policy(const LossInput& input, double threshold) {
  const at::Tensor divergence = mean_of_each((input.behaviour_log_probs - input.log_probs).detach(), input);
  return (input.advantages < 0).logical_and(divergence > threshold);
}

// token_loss [M] → scalar
at::Tensor reduce(const at::Tensor& token_loss, const LossInput& input, const StepShape& step,
                  const LossOptions& options) {
  const auto completions = static_cast<double>(step.completions);
  switch (options.kind) {
    case LossKind::kGrpo: return (token_loss / of_tokens(input.completion_tokens, input)).sum() / completions;
    case LossKind::kBnpo: return token_loss.mean() / static_cast<double>(step.micro_batches);
    case LossKind::kDrGrpo: return token_loss.sum() / (completions * static_cast<double>(options.max_tokens));
    case LossKind::kDapo: break;
  }
  return token_loss.sum() / static_cast<double>(step.tokens);
}

// exp(min(x, 80)), so that a single token whose probability grew further does not make a step's gradients NaN.
at::Tensor bounded_exp(const at::Tensor& x) { return x.clamp_max(80).exp(); }

}  // namespace

std::optional<LossKind> loss_kind_named(std::string_view name) {
  if (name == "grpo") return LossKind::kGrpo;
  if (name == "bnpo") return LossKind::kBnpo;
  if (name == "dr_grpo") return LossKind::kDrGrpo;
  if (name == "dapo") return LossKind::kDapo;
  return std::nullopt;
}

std::optional<ImportanceLevel> importance_level_named(std::string_view name) {
  if (name == "token") return ImportanceLevel::kToken;
  if (name == "sequence") return ImportanceLevel::kSequence;
  return std::nullopt;
}

Loss policy_loss(const LossInput& input, const StepShape& step, const LossOptions& options) {
  const at::Tensor advantages = of_tokens(input.advantages, input);  // [M]
  at::Tensor log_ratio = input.log_probs - input.old_log_probs;      // [M]
  if (options.importance_level == ImportanceLevel::kSequence)
    log_ratio = of_tokens(mean_of_each(log_ratio, input), input);
  const at::Tensor ratio = bounded_exp(log_ratio);
  const at::Tensor clipped_ratio = ratio.clamp(1 - options.epsilon_low, 1 + options.epsilon_high);
  at::Tensor token_loss = -at::minimum(ratio * advantages, clipped_ratio * advantages);

  Loss loss;
  loss.tokens = static_cast<double>(input.log_probs.numel());
  if (options.importance_cap > 0) {
    const at::Tensor weight = (input.old_log_probs - input.behaviour_log_probs).detach().exp();
    const at::Tensor capped = weight.clamp_max(options.importance_cap);
    token_loss = token_loss * capped;
    loss.weights = capped.sum().item<double>();
    loss.capped = (weight > options.importance_cap).sum().item<double>();
  }
  if (options.off_policy_mask > 0) {
    const at::Tensor masked = is_off_policy(input, options.off_policy_mask);
    token_loss = token_loss.masked_fill(of_tokens(masked, input), 0);
    loss.masked = masked.sum().item<double>();
  }
  if (input.reference_log_probs.defined()) {
    const at::Tensor difference = input.reference_log_probs - input.log_probs;
    const at::Tensor divergence = bounded_exp(difference) - difference - 1;
    if (options.beta > 0) token_loss = token_loss + options.beta * divergence;
    loss.kl_sum = divergence.sum().item<double>();
  }
  loss.clipped = ((clipped_ratio * advantages) < (ratio * advantages)).sum().item<double>();
  loss.value = reduce(token_loss, input, step, options);
  return loss;
}

}  // namespace bascule::ref
