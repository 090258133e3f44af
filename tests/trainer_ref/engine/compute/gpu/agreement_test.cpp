// Compares the GPU's results with the CPU's.
#include <gmock/gmock.h>

#include "support.h"

namespace bascule::ref {
namespace {

class Agreement : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { BASCULE_NEEDS_TORCH_GPU(); }
  static const char* fixture() { return GetParam(); }

  // The largest difference between logits of 60 random tokens, as a share of the largest logit.
  static double difference(DType dtype) {
    const std::filesystem::path folder = std::filesystem::path(BASCULE_FIXTURES) / fixture();
    const c10::InferenceMode no_gradients;
    const ModelConfig config = one_thread(*read_config(folder));
    WeightMap weights = *read_weights(folder, config, dtype);
    std::mt19937 random(5);
    const std::vector<std::int64_t> tokens = random_prompt(random, 60, config.vocab_size);
    const at::Tensor wanted = cpu_logits(*Decoder::bind(config, weights), tokens);
    const at::Device gpu = *test::torch_gpu();
    for (auto& [name, tensor] : weights) tensor = tensor.to(gpu);
    CausalAttention attention(pack_rows({60}, gpu));
    const Decoder decoder = *Decoder::bind(config, weights);
    const at::Tensor found =
        decoder
            .logits(decoder.forward(at::tensor(at::IntArrayRef(tokens), at::kLong).to(gpu),
                                    at::arange(60, at::TensorOptions(gpu).dtype(at::kLong)), attention))
            .cpu();
    const double result = ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
    RecordProperty("difference", std::to_string(result));
    std::printf("difference of %s, %s: %.2e of the largest logit\n", fixture(), name_of(dtype).data(), result);
    return result;
  }

  // Requests of all lengths at once, as the engine runs them.
  static void expect_engine_agrees(DType dtype, double tolerance) {
    for (const Graphs graphs : {Graphs::kOff, Graphs::kOn}) {
      TestEngine engine(fixture(), 256, {}, dtype, on_gpu(graphs));
      const Decoder decoder = *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), dtype));
      const std::vector<TestRequest> requests = mixed_requests(engine.config().vocab_size);
      const Scheduler::Sequences ended = engine.run(requests);
      ASSERT_GE(ended.size(), requests.size());
      for (const auto& sequence : ended) {
        EXPECT_EQ(static_cast<std::int64_t>(sequence->generated()), requests[sequence->request].max_tokens);
        expect_agreement(decoder, *sequence, tolerance);
      }
      EXPECT_EQ(engine.runner().graphs().replayed > 0, graphs == Graphs::kOn);
    }
  }
};

// The first round meets each shape, the second records the shapes still missing, the third replays all: prompts, pieces
// of them, and single tokens beside them.
TEST_P(Agreement, EveryStepIsReplayedOnceItIsKnown) {
  TestEngine engine(fixture(), 256, {.max_batch = 16, .max_step_tokens = 40}, DType::kF32, on_gpu(Graphs::kOn));
  const Decoder decoder = *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), DType::kF32));
  GraphCounts counts;
  std::uint64_t steps = 0;
  for (int round = 1; round <= 3; ++round) {
    engine.pool().drop_prefixes();
    const GraphCounts before = engine.runner().graphs();
    const std::uint64_t steps_before = engine.steps();
    for (const auto& sequence : engine.run(mixed_requests(engine.config().vocab_size)))
      expect_agreement(decoder, *sequence, 1e-4);
    counts = {engine.runner().graphs().recorded - before.recorded, engine.runner().graphs().replayed - before.replayed};
    steps = engine.steps() - steps_before;
  }
  EXPECT_EQ(counts.recorded, 0);
  EXPECT_EQ(counts.replayed, steps);
}

// Penalties, biases and min_tokens: counts are right after pre-emptions, with shared prefixes, for siblings, while
// steps run ahead, in graphs and without them.
TEST_P(Agreement, WhatRequestsChangeAboutLogits) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Graphs graphs : {Graphs::kOff, Graphs::kOn})
      for (const std::size_t blocks : {256U, 9U}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", graphs " << static_cast<int>(graphs) << ", " << blocks);
        TestEngine engine(fixture(), blocks, {.max_batch = 8, .max_step_tokens = 20}, dtype, on_gpu(graphs));
        const Decoder decoder = *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), dtype));
        const auto requests = adjusted_requests(engine.config().vocab_size);
        for (int round = 1; round <= 3; ++round)
          for (const auto& sequence : engine.run(first_of(requests)))
            expect_adjusted(decoder, *sequence, requests[sequence->request].second, dtype == DType::kF32 ? 1e-4 : 0.03);
        EXPECT_EQ(engine.scheduler().preemptions() > 0, blocks == 9);
        EXPECT_EQ(engine.runner().graphs().replayed > 0, graphs == Graphs::kOn);
      }
}

TEST_P(Agreement, LogitsInFloat32) { EXPECT_LE(difference(DType::kF32), 1e-4); }
TEST_P(Agreement, LogitsInBFloat16) { EXPECT_LE(difference(DType::kBF16), 0.02); }
TEST_P(Agreement, GreedyTokensInFloat32) { expect_engine_agrees(DType::kF32, 1e-4); }
TEST_P(Agreement, GreedyTokensInBFloat16) { expect_engine_agrees(DType::kBF16, 0.02); }

INSTANTIATE_TEST_SUITE_P(Families, Agreement,
                         ::testing::Values("llama_scaled", "llama_biased", "mistral", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bascule::ref
