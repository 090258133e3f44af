#include <bascule/transport/cuda/device_memory.h>

#include <cuda_runtime_api.h>

#include "reader_process.h"
#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/status.h>

namespace bascule::inline v0::cuda {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using testing::HasSubstr;

TEST(DeviceMemory, AnotherProcessReadsWhatWasWritten) {
  BASCULE_NEEDS_GPUS(1);
  for (const std::size_t size : {std::size_t{1}, std::size_t{70'001}, (std::size_t{5} << 20) + 3}) {
    const Slot slot(size);
    EXPECT_GE(slot.allocation.bytes(), size);
    EXPECT_EQ(ask(slot.message(Command::kDigest), slot.descriptor.get()), digest_of(slot.bytes)) << size << " bytes";
  }
}

TEST(DeviceMemory, AWriteThroughAReadOnlyMappingIsRefusedAndChangesNothing) {
  BASCULE_NEEDS_GPUS(1);
  const Slot slot(100'000);
  EXPECT_THAT(ask(slot.message(Command::kWrite), slot.descriptor.get()),
              testing::AnyOf(testing::StartsWith("sticky: "), testing::StartsWith("refused: ")));
  std::vector<std::byte> now(slot.bytes.size());
  ASSERT_EQ(cudaMemcpy(now.data(), slot.mapping.data(), now.size(), cudaMemcpyDeviceToHost), cudaSuccess)
      << "the reader's error must not reach the owner";
  EXPECT_TRUE(now == slot.bytes);
}

TEST(DeviceMemory, AWritableMappingWritesTheSameMemory) {
  BASCULE_NEEDS_GPUS(1);
  const Slot slot(100'000);
  EXPECT_EQ(ask(slot.message(Command::kWriteAllowed), slot.descriptor.get()), "ok");
  std::vector<std::byte> now(slot.bytes.size());
  ASSERT_EQ(cudaMemcpy(now.data(), slot.mapping.data(), now.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_TRUE(now == std::vector<std::byte>(now.size(), std::byte{0x77}));
}

TEST(DeviceMemory, OutlivesItsAllocationAndItsMappingInAnyOrder) {
  BASCULE_NEEDS_GPUS(1);
  Slot slot(100'000);
  slot.allocation = Allocation();
  slot.mapping = DeviceMapping();
  absl::StatusOr<Allocation> again =
      Allocation::import(slot.device.ordinal, slot.descriptor.get(), 2 << 20, slot.device.ordinal);
  ASSERT_THAT(again, IsOk());
  absl::StatusOr<DeviceMapping> mapping = DeviceMapping::map(*again, Access::kReadOnly, slot.device.ordinal);
  ASSERT_THAT(mapping, IsOk());
  *again = Allocation();
  slot.descriptor.reset();
  std::vector<std::byte> now(slot.bytes.size());
  ASSERT_EQ(cudaMemcpy(now.data(), mapping->data(), now.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_TRUE(now == slot.bytes);
  EXPECT_THAT(take_kept_errors(), IsOk());
}

// Other processes come and go on this GPU, each with half a GiB of context; a leak here would be far larger.
TEST(DeviceMemory, IsGivenBack) {
  BASCULE_NEEDS_GPUS(1);
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 30, kOthers = std::uint64_t{6} << 30;
  std::size_t before = 0, after = 0, total = 0;
  { const Slot warm(100); }
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  if (before < kBytes + kOthers) GTEST_SKIP() << "needs 14 GiB of free device memory";
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<Allocation> allocation = Allocation::make(0, kBytes);
    ASSERT_THAT(allocation, IsOk());
    absl::StatusOr<DeviceMapping> mapping = DeviceMapping::map(*allocation, Access::kReadWrite, 0);
    ASSERT_THAT(mapping, IsOk());
  }
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_GE(after + kOthers, before);
}

TEST(DeviceMemory, RefusesWhatIsTooLargeNoGranuleOrNoMemory) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_THAT(Allocation::make(0, std::uint64_t{1} << 50),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("on device 0")));
  const Slot slot(100);
  EXPECT_THAT(Allocation::import(0, slot.descriptor.get(), 100, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole granules")));
  EXPECT_FALSE(Allocation::import(0, STDERR_FILENO, 2 << 20, 0).ok());
  EXPECT_THAT(slot.allocation.export_descriptor(), IsOk()) << "the device must be well after all that";
}

}  // namespace
}  // namespace bascule::inline v0::cuda
