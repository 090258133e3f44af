// Users' streams and memory, checked before the device uses them.
#include <cuda_runtime_api.h>

#include <array>
#include <vector>

#include "support/devices/captures.h"
#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/device.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::Capture;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// ---- streams ----

TEST(CheckStream, RefusesOneThatIsCapturedAndTheCaptureGoesOn) {
  BASCULE_NEEDS_GPUS(1);
  const absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = open_device(0);
  const absl::StatusOr<std::unique_ptr<DeviceMark>> mark = make_device_mark(0);
  ASSERT_THAT(queue, IsOk());
  ASSERT_THAT(mark, IsOk());
  Capture capture(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);
  const auto refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is being captured"));
  EXPECT_THAT(check_stream(0, capture.stream()), refused);
  EXPECT_THAT((*queue)->check(capture.stream()), refused);
  EXPECT_THAT((*queue)->run_behind(capture.stream()), refused);
  EXPECT_THAT((*mark)->record(capture.stream()), refused);
  EXPECT_TRUE(capture.end()) << "nothing of ours ended it";
  EXPECT_THAT((*queue)->run_behind(capture.stream()), IsOk()) << "and nothing of ours is in it";
  EXPECT_THAT((*queue)->finish(Deadline(absl::Seconds(20))), IsOk());
}

// CUDA would treat this as a dependency on the captured stream, and end the capture.
TEST(CheckStream, RefusesTheDefaultStreamWhileABlockingOneIsCaptured) {
  BASCULE_NEEDS_GPUS(1);
  const absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = open_device(0);
  ASSERT_THAT(queue, IsOk());
  Capture capture(cudaStreamDefault, cudaStreamCaptureModeThreadLocal);
  EXPECT_THAT((*queue)->run_behind(nullptr),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("default stream"), HasSubstr("blocking"))));
  EXPECT_TRUE(capture.end());
  EXPECT_THAT((*queue)->run_behind(nullptr), IsOk());
}

TEST(CheckStream, TakesThoseOfTheDeviceAndLeavesTheUsersError) {
  BASCULE_NEEDS_GPUS(1);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, std::size_t{1} << 60), cudaErrorMemoryAllocation);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (Stream each : {stream, cudaStream_t{}, cudaStreamPerThread}) EXPECT_THAT(check_stream(0, each), IsOk());
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// ---- memory ----

absl::Status check(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  const std::array<MemoryRange, 1> range = {{{.tensor = "model.norm", .first = first, .last = first + (bytes - 1)}}};
  return check_memory(0, range);
}

constexpr std::size_t kBytes = std::size_t{4} << 20;

TEST(CheckMemory, TakesWhatKernelsOfTheDeviceReach) {
  BASCULE_NEEDS_GPUS(1);
  void *device = nullptr, *pinned = nullptr, *pooled = nullptr;
  ASSERT_EQ(cudaMalloc(&device, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&pooled, kBytes, nullptr), cudaSuccess);
  for (const void* memory : {device, pinned, pooled}) {
    EXPECT_THAT(check(memory, kBytes), IsOk());
    EXPECT_THAT(check(static_cast<const std::byte*>(memory) + 2, 1), IsOk());
  }
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(CheckMemory, RefusesByNameWhatWouldLoseTheDevice) {
  BASCULE_NEEDS_GPUS(1);
  const std::vector<std::byte> pageable(kBytes);
  const auto refused = StatusIs(
      StatusCode::kInvalidArgument,
      AllOf(HasSubstr("tensor model.norm"), HasSubstr("device 0"), HasSubstr("memory that CUDA does not know")));
  EXPECT_THAT(check(pageable.data(), kBytes), refused);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what a view of no storage has
  EXPECT_THAT(check(reinterpret_cast<const void*>(std::uintptr_t{8}), 4), refused);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, std::size_t{64} << 20), cudaSuccess);
  EXPECT_THAT(check(freed, std::size_t{1} << 40),
              AllOf(refused, StatusIs(StatusCode::kInvalidArgument, HasSubstr("at its last byte"))));
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_THAT(check(freed, kBytes), refused);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(OutOfMemory, SaysForWhatAndHowMuchAndHowMuchThereIs) {
  BASCULE_NEEDS_GPUS(1);
  const absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = open_device(0);
  ASSERT_THAT(queue, IsOk());
  EXPECT_THAT(
      (*queue)->allocate(std::uint64_t{1} << 50, "the second set of tensors"),
      StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("the second set of tensors"),
                                                     HasSubstr("1125899906842624 bytes"), HasSubstr("MiB free of"))));
}

}  // namespace
}  // namespace bascule
