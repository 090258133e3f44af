#include <bascule/trainer_ref/model/token_log_probs.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <bascule/trainer_ref/model/fused_scores.h>

namespace bascule::ref {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// logits [c, V] in float, which this changes
void score_plainly(const ChunkScores& out, const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor largest = logits.amax(1, /*keepdim=*/true);  // [c, 1]
  logits.sub_(largest);                                         // now at most 0
  const at::Tensor powers = logits.exp();
  const at::Tensor sums = powers.sum(1), log_sums = sums.log();
  const at::Tensor at_target = logits.gather(1, targets.unsqueeze(1)).squeeze(1);
  out.log_probs.copy_(at_target - log_sums);
  // Σ p log p = Σ p (logit − log Σ exp logit)
  out.entropy.copy_(log_sums - powers.mul_(logits).sum(1) / sums);
  out.log_sums.copy_(log_sums + largest.squeeze(1));
}

// d log p(target) / d logits = (1 at the target) − softmax(logits). logits [c, V] in float become that, times weights.
void differentiate_plainly(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                           const at::Tensor& weights) {
  logits.sub_(log_sums.unsqueeze(1)).exp_().mul_(-weights.unsqueeze(1));
  logits.scatter_add_(1, targets.unsqueeze(1), weights.unsqueeze(1));
}

// Calls visit(first place, places) for each chunk.
template <typename Visit>
void each_chunk(std::int64_t places, std::int64_t chunk, const Visit& visit) {
  for (std::int64_t first = 0; first < places; first += chunk) visit(first, std::min(chunk, places - first));
}

struct ChunkedLogProbs : torch::autograd::Function<ChunkedLogProbs> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& head,
                             const at::Tensor& targets, std::int64_t chunk) {
    const bool fused = has_fused_scores(hidden.device().type());
    const at::Tensor matrix = head.to(hidden.scalar_type());
    const at::Tensor log_probs = at::empty({hidden.size(0)}, hidden.options().dtype(at::kFloat));
    const at::Tensor entropy = at::empty_like(log_probs), log_sums = at::empty_like(log_probs);
    each_chunk(hidden.size(0), chunk, [&](std::int64_t first, std::int64_t places) {
      const auto of_chunk = [&](const at::Tensor& tensor) { return tensor.narrow(0, first, places); };
      const ChunkScores out{of_chunk(log_sums), of_chunk(log_probs), of_chunk(entropy)};
      const at::Tensor logits = at::mm(of_chunk(hidden), matrix.t());
      if (fused)
        score_chunk(out, logits, of_chunk(targets));
      else
        score_plainly(out, logits.to(at::kFloat), of_chunk(targets));
    });
    context->save_for_backward({hidden, head, targets, log_sums});
    context->saved_data["chunk"] = chunk;
    context->mark_non_differentiable({entropy});
    return {log_probs, entropy};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const tensor_list saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &head = saved[1], &targets = saved[2], &log_sums = saved[3];
    const at::Tensor matrix = head.to(hidden.scalar_type());
    const at::Tensor hidden_gradient = at::empty_like(hidden);
    const at::Tensor head_gradient = context->needs_input_grad(1) ? at::zeros_like(head) : at::Tensor();
    const at::Tensor weights = gradients[0].contiguous();  // [M]
    const bool fused = has_fused_scores(hidden.device().type());
    each_chunk(hidden.size(0), context->saved_data["chunk"].toInt(), [&](std::int64_t first, std::int64_t places) {
      const auto of_chunk = [&](const at::Tensor& tensor) { return tensor.narrow(0, first, places); };
      at::Tensor logits_gradient = at::mm(of_chunk(hidden), matrix.t());
      if (fused) {
        differentiate_chunk(logits_gradient, of_chunk(targets), of_chunk(log_sums), of_chunk(weights));
      } else {
        const at::Tensor wide = logits_gradient.to(at::kFloat);
        differentiate_plainly(wide, of_chunk(targets), of_chunk(log_sums), of_chunk(weights));
        logits_gradient = wide.to(hidden.scalar_type());
      }
      at::Tensor out = of_chunk(hidden_gradient);
      at::mm_out(out, logits_gradient, matrix);
      if (head_gradient.defined()) head_gradient.add_(at::mm(logits_gradient.t(), of_chunk(hidden)));
    });
    return {hidden_gradient, head_gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

TokenLogProbs token_log_probs(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                              std::int64_t chunk) {
  const tensor_list found = ChunkedLogProbs::apply(hidden, head, targets, chunk);
  return {.log_probs = found[0], .entropy = found[1]};
}

std::int64_t logit_bytes_per_place(std::int64_t vocabulary, at::ScalarType type, at::DeviceType device) {
  const auto size = static_cast<std::int64_t>(has_fused_scores(device) ? c10::elementSize(type) : 2 * sizeof(float));
  return vocabulary * size;
}

std::int64_t default_logit_chunk(std::int64_t vocabulary, at::ScalarType type, at::DeviceType device) {
  return std::max<std::int64_t>(1, kLogitBytes / logit_bytes_per_place(vocabulary, type, device));
}

}  // namespace bascule::ref
