// Tests that need two GPUs.
#include <thread>

#include "reader_process.h"
#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/cuda/stream.h>

namespace bascule::inline v0::cuda {
namespace {

using bascule::test::IsOk;

TEST(DeviceMemory, AnotherGpuReadsItThroughAReadOnlyMapping) {
  BASCULE_NEEDS_GPUS(2);
  if (!can_reach(1, 0)) GTEST_SKIP() << "needs peer access between GPUs 0 and 1";
  const Slot slot((std::size_t{5} << 20) + 3);
  EXPECT_EQ(ask(slot.message(Command::kDigest, 1), slot.descriptor.get()), digest_of(slot.bytes));
}

TEST(Owners, LeaveTheCallersDeviceAsItWas) {
  BASCULE_NEEDS_GPUS(2);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  int now = -1;
  {
    const absl::StatusOr<UniqueStream> stream = UniqueStream::make(1);
    const absl::StatusOr<UniqueEvent> event = UniqueEvent::make(1);
    ASSERT_EQ(cudaGetDevice(&now), cudaSuccess);
    EXPECT_EQ(now, 0);
  }
  ASSERT_EQ(cudaGetDevice(&now), cudaSuccess);
  EXPECT_EQ(now, 0);
  EXPECT_THAT(take_kept_errors(), IsOk());
}

// Going back to device 0, where every thread begins, would make a context there.
TEST(Owners, LeaveAThreadOfOurOwnWhereItWorks) {
  BASCULE_NEEDS_GPUS(2);
  int now = -1;
  std::thread([&now] {
    kernels::cuda::own_thread_of_devices();
    EXPECT_THAT(UniqueStream::make(1), IsOk());
    EXPECT_EQ(cudaGetDevice(&now), cudaSuccess);
  }).join();
  EXPECT_EQ(now, 1);
  EXPECT_THAT(take_kept_errors(), IsOk());
}

}  // namespace
}  // namespace bascule::inline v0::cuda
