#include <bascule/trainer_ref/grpo/policy.h>

#include <bascule/trainer_ref/model/causal_attention.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/text.h>

namespace bascule::ref {

absl::StatusOr<Policy> Policy::read(const std::filesystem::path& folder, Gradients gradients, at::Device device) {
  BASCULE_ASSIGN(const ModelConfig config, read_config(folder));
  BASCULE_ASSIGN(WeightMap weights, read_weights(folder, config, DType::kF32));
  try {
    for (auto& [name, tensor] : weights) tensor = tensor.to(device);
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        cat(folder.string(), " on ", device.str(), ": ", error.what_without_backtrace()));
  }
  return over(config, std::move(weights), gradients);
}

absl::StatusOr<Policy> Policy::over(const ModelConfig& config, WeightMap weights, Gradients gradients) {
  if (gradients == Gradients::kTracked)
    for (auto& [name, tensor] : weights) tensor.set_requires_grad(true);
  BASCULE_ASSIGN(Decoder decoder, Decoder::bind(config, weights));
  return Policy(config, std::move(weights), std::move(decoder));
}

at::Tensor Policy::logits(const Batch& batch) const {
  CausalAttention attention(batch.rows);
  const at::Tensor hidden = decoder_.forward(batch.token_ids, batch.positions, attention);  // [N, C]
  // Only the places that predict a completion's token go through the head.
  return decoder_.logits(hidden.index_select(0, batch.sources));
}

at::Tensor Policy::log_probs(const Batch& batch, double temperature) const {
  const at::Tensor all = (logits(batch) / temperature).log_softmax(1);  // [M, V]
  return all.gather(1, batch.targets.unsqueeze(1)).squeeze(1);
}

}  // namespace bascule::ref
