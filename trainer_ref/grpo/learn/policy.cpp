#include <bascule/trainer_ref/grpo/learn/policy.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
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
      learning_(decoder_),
      compute_(compute) {
  if (compute_.logit_chunk == 0)
    compute_.logit_chunk = default_logit_chunk(config_.vocab_size, compute_.dtype, device().type());
}

std::shared_ptr<const Decoder> Policy::decoder_with(const Adapter& adapter, bool learns) const {
  std::map<std::string, LowRank, std::less<>> modules = adapter.modules;
  for (auto& [name, factors] : modules) factors.dropout = learns ? adapter.lora.dropout : 0;
  DecoderWeights weights = decoder_->weights();
  weights.adapt(modules);
  return std::make_shared<const Decoder>(std::move(weights), decoder_->norms());
}

absl::StatusOr<Policy> Policy::adapted(Adapter adapter) const {
  try {
    for (auto& [name, factors] : adapter.modules)
      for (at::Tensor* factor : {&factors.a, &factors.b})
        *factor = factor->detach().to(device(), at::kFloat).requires_grad_();
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(cat("an adapter on ", device().str(), ": ", error.what_without_backtrace()));
  }
  Policy policy = *this;
  policy.decoder_ = decoder_with(adapter, /*learns=*/false);
  policy.learning_ = adapter.lora.dropout > 0 ? decoder_with(adapter, /*learns=*/true) : policy.decoder_;
  const auto is_adapted = [](const DecoderLayer& layer) {
    return std::ranges::any_of(
        std::array{&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up, &layer.down},
        [](const Linear* linear) { return !linear->adapters.empty(); });
  };
  const std::vector<DecoderLayer>& layers = policy.decoder_->weights().layers;
  policy.first_trained_layer_ = std::ranges::find_if(layers, is_adapted) - layers.begin();
  policy.adapter_ = std::move(adapter);
  return policy;
}

Policy Policy::without_adapter() const {
  return Policy(config_, weights_, Decoder(*DecoderWeights::bind(config_, weights_), decoder_->norms()), compute_);
}

at::Tensor Policy::hidden_at_sources(const Batch& batch) const {
  const std::shared_ptr<const Decoder>& decoder = at::GradMode::is_enabled() ? learning_ : decoder_;
  const auto attention = std::make_shared<CausalAttention>(batch.rows);
  const Decoder::Rotation rotation = decoder->rotation_at(batch.positions, compute_.dtype);
  at::Tensor hidden = decoder->embed(batch.token_ids).to(compute_.dtype);  // [N, C]
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const auto layer = [decoder, i, rotation, attention](const at::Tensor& input) {
      return decoder->layer(i, input, rotation, *attention);
    };
    // Over frozen layers, only an input with a gradient makes the backward pass compute this layer again.
    if (compute_.checkpoints_layers && i == first_trained_layer_ && at::GradMode::is_enabled() &&
        !hidden.requires_grad())
      hidden = hidden.detach().requires_grad_();
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
