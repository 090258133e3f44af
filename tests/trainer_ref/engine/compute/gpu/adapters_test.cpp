// Rows of several adapters in one step on a GPU, against the model with each adapter alone on the CPU.
#include <gmock/gmock.h>

#include "support.h"
#include "support/temp_folder.h"
#include "trainer_ref/engine/compute/adapters_support.h"

namespace bascule::ref {
namespace {

class GpuAdaptersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { BASCULE_NEEDS_TORCH_GPU(); }
};

// In every round adapters change places, so that a graph of a known shape meets others than it was recorded with.
TEST_P(GpuAdaptersTest, RowsOfDifferentAdaptersAndOfNoneShareSteps) {
  const test::TempFolder temp;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Graphs graphs : {Graphs::kOff, Graphs::kOn}) {
      TestEngine engine(GetParam(), 256, {.max_batch = 16, .max_step_tokens = 40}, dtype, on_gpu(graphs));
      const std::vector<Adapter> adapters{random_adapter(engine.config(), 4, 1), random_adapter(engine.config(), 16, 2),
                                          random_adapter(engine.config(), 1, 3)};
      std::vector<Decoder> decoders;
      for (std::size_t i = 0; i <= adapters.size(); ++i)
        decoders.push_back(adapted(engine.config(), engine.folder(), i == 0 ? nullptr : &adapters[i - 1], dtype));
      for (std::size_t i = 0; i < adapters.size(); ++i) {
        const std::filesystem::path folder = temp.path() / std::to_string(i);
        if (!std::filesystem::exists(folder)) {
          ASSERT_TRUE(write_adapter(folder, adapters[i]).ok());
        }
        ASSERT_TRUE(engine.load(static_cast<AdapterId>(i + 1), folder.string()).ok());
      }
      for (std::size_t round = 0; round < 4; ++round) {
        engine.pool().drop_prefixes();
        std::vector<TestRequest> requests = mixed_requests(engine.config().vocab_size);
        for (std::size_t i = 0; i < requests.size(); ++i)
          requests[i].adapter = static_cast<AdapterId>((i + round) % (round == 3 ? 1 : 4));
        for (const auto& sequence : engine.run(requests))
          expect_agreement(decoders[sequence->adapter], *sequence, dtype == DType::kF32 ? 1e-4 : 0.05);
      }
      EXPECT_EQ(engine.runner().graphs().replayed > 0, graphs == Graphs::kOn);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, GpuAdaptersTest, ::testing::Values("qwen2", "qwen3", "mistral", "llama_biased"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace bascule::ref
