// Adapters that change what the fixtures' models say, and the models with them on the CPU.
#pragma once

#include "support.h"
#include <bascule/trainer_ref/model/adapter_folder.h>

namespace bascule::ref {

// An adapter with all modules, whose update changes logits.
inline Adapter random_adapter(const ModelConfig& config, std::int64_t rank, std::uint64_t seed) {
  Adapter adapter =
      Adapter::make(config, new_lora_config({.rank = rank, .alpha = 2.0 * static_cast<double>(rank)}).value(), seed)
          .value();
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (auto& [name, factors] : adapter.modules) factors.b.uniform_(-0.2, 0.2, generator);
  return adapter;
}

inline Decoder adapted(const ModelConfig& config, const std::filesystem::path& folder, const Adapter* adapter,
                       DType dtype = DType::kF32) {
  DecoderWeights weights = *DecoderWeights::bind(config, *read_weights(folder, config, dtype));
  if (adapter != nullptr) weights.adapt(adapter->modules);
  return Decoder(std::move(weights));
}

// Each token is the likeliest one by the model with the request's adapter, and as likely as it says.
inline void expect_of(const Decoder& decoder, const Sequence& sequence, double tolerance) {
  const at::Tensor logprobs = cpu_logits(decoder, sequence.tokens).log_softmax(-1);
  for (std::size_t t = 0; t < sequence.generated(); ++t) {
    const at::Tensor row = logprobs[static_cast<std::int64_t>(sequence.prompt_tokens + t) - 1];
    const double found = row[sequence.completion()[t]].item<double>();
    EXPECT_NEAR(found, row.max().item<double>(), tolerance) << "request " << sequence.request << ", token " << t;
    EXPECT_NEAR(sequence.samples[t].logprob, found, tolerance) << "request " << sequence.request << ", token " << t;
  }
}

}  // namespace bascule::ref
