#include <bascule/trainer_ref/grpo/loss.h>

namespace bascule::ref {
namespace {

// token_loss [M] → scalar
at::Tensor reduce(const at::Tensor& token_loss, const LossInput& input, const StepShape& step,
                  const LossOptions& options) {
  const auto completions = static_cast<double>(step.completions);
  switch (options.kind) {
    case LossKind::kGrpo:
      return (token_loss / input.completion_tokens.index_select(0, input.row_of)).sum() / completions;
    case LossKind::kBnpo: return token_loss.mean() / static_cast<double>(step.micro_batches);
    case LossKind::kDrGrpo: return token_loss.sum() / (completions * static_cast<double>(options.max_tokens));
    case LossKind::kDapo: break;
  }
  return token_loss.sum() / static_cast<double>(step.tokens);
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
  const at::Tensor advantages = input.advantages.index_select(0, input.row_of);  // [M]
  const at::Tensor ratio = (input.log_probs - input.old_log_probs).exp();        // [M]
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
    loss.kl_sum = divergence.sum().item<double>();
  }
  const at::Tensor held = (clipped_ratio * advantages) < (ratio * advantages);
  loss.clipped = held.sum().item<double>();
  loss.tokens = static_cast<double>(input.log_probs.numel());
  loss.value = reduce(token_loss, input, step, options);
  return loss;
}

}  // namespace bascule::ref
