#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>

#include <bascule/trainer_ref/engine/compute/cache_attention.h>

#include "support.h"

namespace bascule::ref {
namespace {

using ::testing::ElementsAreArray;

// The device memory that LibTorch holds, in use or kept for later.
std::int64_t held_bytes() {
  return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(test::torch_gpu()->index()).reserved_bytes.at(0).current;
}

TEST(Sleep, GivesTheMemoryOfCacheAndGraphsBackToTheDevice) {
  BASCULE_NEEDS_TORCH_GPU();
  constexpr std::int64_t kCacheBytes = std::int64_t{1} << 30;
  const ModelConfig config = *read_config(std::filesystem::path(BASCULE_FIXTURES) / "qwen3");
  const auto blocks = static_cast<std::size_t>(kCacheBytes / block_bytes(config, at::kFloat));
  TestEngine engine("qwen3", blocks, {.max_batch = 8}, DType::kF32, on_gpu(Graphs::kOn));
  std::mt19937 random(3);
  const std::vector<TestRequest> requests{{random_prompt(random, 40, config.vocab_size), 30},
                                          {random_prompt(random, 7, config.vocab_size), 30}};
  const Scheduler::Sequences before = engine.run(requests);
  const std::int64_t awake = held_bytes();
  for (int round = 0; round < 3; ++round) {
    engine.pool().drop_prefixes();
    ASSERT_TRUE(engine.runner().sleep().ok());
    const std::int64_t asleep = held_bytes();
    EXPECT_LE(asleep, awake - kCacheBytes);
    EXPECT_LE(asleep, std::int64_t{64} << 20) << "weights of 60 KB, and cuBLAS's workspace";
    std::printf("held awake %.1f MiB, asleep %.1f MiB\n", static_cast<double>(awake) / (1 << 20),
                static_cast<double>(asleep) / (1 << 20));
    ASSERT_TRUE(engine.runner().wake_up().ok());
    const Scheduler::Sequences after = engine.run(requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_THAT(after[i]->completion(), ElementsAreArray(before[i]->completion()));
    EXPECT_LE(held_bytes(), awake);
  }
}

TEST(Sleep, StaysAsleepWhereTheDeviceHasNotTheMemory) {
  BASCULE_NEEDS_TORCH_GPU();
  TestEngine engine("qwen3", 64, {.max_batch = 8}, DType::kF32, on_gpu(Graphs::kOff));
  ASSERT_TRUE(engine.runner().sleep().ok());
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(at::kCUDA);
  std::vector<at::Tensor> all;  // of the free memory, in ever smaller pieces
  for (std::int64_t bytes = std::int64_t{64} << 30; bytes >= 1024;) {
    try {
      all.push_back(at::empty({bytes}, at::TensorOptions(*test::torch_gpu()).dtype(at::kByte)));
    } catch (const c10::Error&) {
      bytes /= 2;
    }
  }
  const absl::Status refused = engine.runner().wake_up();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("wake the engine up again"));
  all.clear();
  allocator->emptyCache();
  EXPECT_TRUE(engine.runner().wake_up().ok());
  EXPECT_EQ(engine.run({{{1, 2, 3}, 5}}).at(0)->generated(), 5U);
}

}  // namespace
}  // namespace bascule::ref
