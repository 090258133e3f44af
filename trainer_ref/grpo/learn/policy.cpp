#include <bascule/trainer_ref/grpo/learn/policy.h>

#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/model/causal_attention.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/recompute.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

bool is_finite(const WeightMap& weights) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back(tensor);
  // The largest element of each, so that no square overflows.
  return at::stack(at::_foreach_norm(tensors, std::numeric_limits<double>::infinity())).isfinite().all().item<bool>();
}

absl::StatusOr<Policy> Policy::read(const std::filesystem::path& folder, Gradients gradients, at::Device device,
                                    const ComputeOptions& compute, const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(folder));
  const bool wide = gradients == Gradients::kTracked || compute.dtype == at::kFloat;
  BASCULE_ASSIGN(WeightMap weights, read_weights(folder, config, wide ? DType::kF32 : DType::kBF16, log));
  try {
    for (auto& [name, tensor] : weights) tensor = tensor.to(device);
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        cat(folder.string(), " on ", device.str(), ": ", error.what_without_backtrace()));
  }
  return over(config, std::move(weights), gradients, compute);
}

absl::StatusOr<Policy> Policy::over(const ModelConfig& config, WeightMap weights, Gradients gradients,
                                    const ComputeOptions& compute) {
  if (gradients == Gradients::kTracked)
    for (auto& [name, tensor] : weights) tensor.set_requires_grad(true);
  const Norms norms = compute.dtype == at::kFloat ? Norms::kStepwise : Norms::kFused;
  BASCULE_ASSIGN(Decoder decoder, Decoder::bind(config, weights, norms));
  return Policy(config, std::move(weights), std::move(decoder), compute);
}

Policy::Policy(const ModelConfig& config, WeightMap weights, Decoder decoder, const ComputeOptions& compute)
    : config_(config),
      weights_(std::move(weights)),
      decoder_(std::make_shared<const Decoder>(std::move(decoder))),
      compute_(compute) {
  if (compute_.logit_chunk == 0)
    compute_.logit_chunk = default_logit_chunk(config_.vocab_size, compute_.dtype, device().type());
}

at::Tensor Policy::hidden_at_sources(const Batch& batch) const {
  const auto attention = std::make_shared<CausalAttention>(batch.rows);
  const Decoder::Rotation rotation = decoder_->rotation_at(batch.positions, compute_.dtype);
  at::Tensor hidden = decoder_->embed(batch.token_ids).to(compute_.dtype);  // [N, C]
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const auto layer = [decoder = decoder_, i, rotation, attention](const at::Tensor& input) {
      return decoder->layer(i, input, rotation, *attention);
    };
    hidden = compute_.checkpoints_layers ? recomputed(layer, hidden) : layer(hidden);
  }
  // Only the positions that predict a completion's token go through the head.
  return decoder_->last_norm(hidden.index_select(0, batch.sources));
}

TokenLogProbs Policy::score(const Batch& batch, double temperature) const {
  at::Tensor hidden = hidden_at_sources(batch);
  if (temperature != 1) hidden = hidden / temperature;  // divides the logits, since the head is linear
  return token_log_probs(hidden, decoder_->weights().head, batch.targets, compute_.logit_chunk);
}

at::Tensor Policy::likeliest(const Batch& batch) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> found;
  for (const at::Tensor& hidden : hidden_at_sources(batch).split(compute_.logit_chunk))
    found.push_back(at::linear(hidden, decoder_->weights().head.to(compute_.dtype)).argmax(1));
  return at::cat(found);
}

}  // namespace bascule::ref
