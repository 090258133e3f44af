#include "trainer_ref/engine/torch_runner.h"

#include <c10/core/InferenceMode.h>

#include "transport/text.h"

namespace bascule::ref {
namespace {

absl::StatusOr<std::vector<Sample>> sample_row(const Sequence& lead, std::span<const float> logits, Version version) {
  std::vector<Sample> samples;
  const auto draw = [&](const Sequence& sequence) {
    const double number = uniform(sequence.sampling.seed, sequence.choice, sequence.generated());
    const std::optional<Sample> drawn = sample(logits, sequence.sampling, number);
    if (drawn) samples.push_back(*drawn);
    return drawn.has_value();
  };
  bool sound = draw(lead);
  for (const auto& sibling : lead.siblings) sound = sound && draw(*sibling);
  if (sound) return samples;
  return absl::InternalError(cat("version ", version, " yields logits that are no numbers; send sound weights"));
}

}  // namespace

absl::StatusOr<std::vector<std::vector<Sample>>> TorchRunner::run(const Step& step) {
  absl::StatusOr<std::vector<std::vector<Sample>>> samples = absl::InternalError("");
  try {
    samples = forward(step);
  } catch (const std::exception& error) {
    samples = absl::InternalError(cat("LibTorch: ", error.what()));
  }
  if (!samples.ok()) cache_.clear();  // what is no number must not linger where padding reads it
  return samples;
}

absl::StatusOr<std::vector<std::vector<Sample>>> TorchRunner::forward(const Step& step) {
  const c10::InferenceMode no_gradients;
  const Decoder& decoder = weights_->decoder();
  cache_.copy_blocks(step.copies);
  const FlatBatch batch = cache_.lay_out(step.rows);
  const at::Tensor hidden = decoder.forward(batch.token_ids, batch.positions, cache_);  // [N, C]

  std::vector<std::int64_t> sampled;
  for (std::size_t i = 0; i < step.rows.size(); ++i)
    if (step.rows[i].samples()) sampled.push_back(batch.last[i]);
  std::vector<std::vector<Sample>> samples(step.rows.size());
  if (sampled.empty()) return samples;
  const at::Tensor picked = hidden.index_select(0, at::tensor(at::IntArrayRef(sampled), at::kLong));
  const at::Tensor logits = decoder.logits(picked).contiguous();  // [sampled, V]
  const auto vocabulary = static_cast<std::size_t>(logits.size(1));
  const float* row_logits = logits.const_data_ptr<float>();
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    if (!step.rows[i].samples()) continue;
    BASCULE_ASSIGN(samples[i], sample_row(*step.rows[i].sequence, {row_logits, vocabulary}, served_.version));
    row_logits += vocabulary;
  }
  return samples;
}

}  // namespace bascule::ref
