#include <bascule/trainer_ref/grpo/loss.h>

namespace bascule::ref {
namespace {

// token_loss, mask [B, T] → scalar
at::Tensor reduce(const at::Tensor& token_loss, const at::Tensor& mask, const StepShape& step,
                  const LossOptions& options) {
  const at::Tensor masked = token_loss * mask;
  const auto completions = static_cast<double>(step.completions);
  switch (options.kind) {
    case LossKind::kGrpo: return (masked.sum(1) / mask.sum(1).clamp_min(1)).sum() / completions;
    case LossKind::kBnpo: return masked.sum() / mask.sum().clamp_min(1) / static_cast<double>(step.micro_batches);
    case LossKind::kDrGrpo: return masked.sum() / (completions * static_cast<double>(options.max_tokens));
    case LossKind::kDapo: break;
  }
  return masked.sum() / static_cast<double>(step.tokens);
}

}  // namespace

std::optional<LossKind> loss_kind_named(std::string_view name) {
  if (name == "grpo") return LossKind::kGrpo;
  if (name == "bnpo") return LossKind::kBnpo;
  if (name == "dr_grpo") return LossKind::kDrGrpo;
  if (name == "dapo") return LossKind::kDapo;
  return std::nullopt;
}

Loss policy_loss(const LossInput& input, const StepShape& step, const LossOptions& options) {
  const at::Tensor advantages = input.advantages.unsqueeze(1);             // [B, 1]
  const at::Tensor ratio = (input.log_probs - input.old_log_probs).exp();  // [B, T]
  const at::Tensor clipped_ratio = ratio.clamp(1 - options.epsilon_low, 1 + options.epsilon_high);
  const at::Tensor objective = at::minimum(ratio * advantages, clipped_ratio * advantages);

  at::Tensor token_loss = -objective;
  if (options.importance_cap > 0)
    token_loss =
        token_loss * (input.old_log_probs - input.behaviour_log_probs).exp().clamp_max(options.importance_cap).detach();
  Loss loss;
  if (input.reference_log_probs.defined()) {
    const at::Tensor difference = input.reference_log_probs - input.log_probs;
    const at::Tensor divergence = difference.exp() - difference - 1;
    if (options.beta > 0) token_loss = token_loss + options.beta * divergence;
    loss.kl_sum = (divergence * input.mask).sum().item<double>();
  }
  const at::Tensor held = (clipped_ratio * advantages) < (ratio * advantages);
  loss.clipped = (held * input.mask).sum().item<double>();
  loss.tokens = input.mask.sum().item<double>();
  loss.value = reduce(token_loss, input.mask, step, options);
  return loss;
}

}  // namespace bascule::ref
