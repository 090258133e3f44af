#include <bascule/bench/targets.h>

#include <gtest/gtest.h>

namespace bascule::bench {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

double target(std::string scheme, std::string scenario, std::string device, std::uint64_t bytes = kGiB) {
  Record record;
  record.scheme = std::move(scheme);
  record.scenario = std::move(scenario);
  record.device = std::move(device);
  record.bytes = bytes;
  const std::optional<Goal> found = target_of(record);
  return found ? found->at_most : 0;
}

// Records may come from another machine: every build knows the facts of every scheme.
TEST(Targets, DependOnHowTheSchemesWorkersRead) {
  for (const char* scheme : {"shm", "memmap"}) EXPECT_EQ(target(scheme, "send", "cpu"), 1.15) << scheme;
  EXPECT_EQ(target("shm", "send", "cpu", kGiB - 1), 0) << "too small to be measured so";
  EXPECT_EQ(target("memmap", "durable", "cpu"), 1.15);
  EXPECT_EQ(target("nccl", "send", "cuda:0 to cuda:1"), 1.12);
  EXPECT_EQ(target("cuda-ipc", "send", "cuda:0 to cuda:1"), 1.2);
  EXPECT_EQ(target("auto", "send", "cuda:0 to cuda:1"), 0) << "it has none there";
  for (const char* scheme : {"auto", "cuda-ipc", "nccl"}) EXPECT_EQ(target(scheme, "send", "cuda:0"), 1.15) << scheme;
  EXPECT_EQ(target("shm", "send", "cuda:0"), 1.15) << "through the host";
  EXPECT_EQ(target("nccl", "death", "cuda:0 to cuda:1"), 1.5);
  EXPECT_EQ(target("cuda-ipc", "death", "cuda:0 to cuda:1"), 0.3);
}

TEST(Targets, KnowWhatSlotsAreMadeOf) {
  EXPECT_EQ(slot_memory_of("memmap"), FlatCopy::Into::kFile);
  EXPECT_EQ(slot_memory_of("shm"), FlatCopy::Into::kMemfd);
  EXPECT_TRUE(broadcasts("nccl"));
  EXPECT_FALSE(broadcasts("auto"));
}

}  // namespace
}  // namespace bascule::bench
