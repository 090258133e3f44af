// An engine on the GPU, and the CPU's results for what it generated.
#pragma once

#include <utility>

#include "support/devices/torch_gpu.h"
#include "trainer_ref/engine/compute/support.h"

namespace bascule::ref {

enum class Graphs { kOff, kOn };

inline TestPlace on_gpu(Graphs graphs) {
  TestPlace where{.place = Place::on(*test::torch_gpu())};
  if (graphs == Graphs::kOn) {
    auto recorder = open_graph_recorder();
    EXPECT_TRUE(recorder.ok()) << recorder.status();
    if (recorder.ok()) where.recorder = *std::move(recorder);
  }
  return where;
}

// Expects each greedy token to be the CPU's, or to have a logit there below the best by at most `tolerance` of the
// largest, and its logprob to differ from the CPU's by at most that.
inline void expect_agreement(const Decoder& decoder, const Sequence& sequence, double tolerance) {
  const at::Tensor logits = cpu_logits(decoder, sequence.tokens);
  const at::Tensor logprobs = logits.log_softmax(-1);
  const double margin = tolerance * logits.abs().max().item<double>();
  for (std::size_t t = 0; t < sequence.generated(); ++t) {
    const auto row = static_cast<std::int64_t>(sequence.prompt_tokens + t) - 1;
    const std::int64_t token = sequence.completion()[t];
    EXPECT_GE(logits[row][token].item<double>(), logits[row].max().item<double>() - margin)
        << "request " << sequence.request << ", token " << t;
    EXPECT_NEAR(sequence.samples[t].logprob, logprobs[row][token].item<double>(), 2 * margin);
  }
}

}  // namespace bascule::ref
