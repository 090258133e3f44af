#include <bascule/transport/cuda/device.h>

#include <cuda_runtime_api.h>

#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/transport/cuda/status.h>

namespace bascule::inline v0::cuda {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using testing::HasSubstr;

// On any machine, the result is a device or the reason.
TEST(Devices, AreThereOrAReasonIs) {
  const absl::StatusOr<std::vector<Device>> all = devices();
  if (bascule::test::gpus() == 0) {
    EXPECT_THAT(all, StatusIs(absl::StatusCode::kUnavailable, testing::Not(testing::IsEmpty())));
    EXPECT_THAT(why_no_gpu(), StatusIs(absl::StatusCode::kUnavailable, testing::Not(testing::IsEmpty())));
    EXPECT_FALSE(can_reach(0, 1));
    EXPECT_FALSE(is_sticky(why_no_gpu()));
    return;
  }
  ASSERT_THAT(all, IsOk());
  for (const Device& device : *all) {
    EXPECT_THAT(device.name, HasSubstr("NVIDIA"));
    EXPECT_GT(device.memory_bytes, std::uint64_t{1} << 30);
    const absl::StatusOr<Device> found = find_device(device.uuid);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->ordinal, device.ordinal);
  }
}

TEST(Devices, OnesThatAreNotSeenAreNamedWithThoseThatAre) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_THAT(find_device({1, 2, 3}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("it sees GPU-")));
}

TEST(Uuid, IsWrittenAsNvidiaSmiDoes) {
  EXPECT_EQ(to_string({0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60, 0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9}),
            "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9");
}

TEST(CudaStatus, TellsTheCallTheNumberAndThePlace) {
  const absl::Status status =
      cuda_status({.code = cudaErrorMemoryAllocation, .call = "allocate(7)", .file = "a.cu", .line = 12});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("allocate(7): ")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at a.cu:12")));
  EXPECT_FALSE(is_sticky(status));
  EXPECT_THAT(cuda_status({}), IsOk());
}

TEST(CudaStatus, KeepsTheFirstErrorOfThoseThatNobodyIsTold) {
  EXPECT_THAT(take_kept_errors(), IsOk());
  kernels::cuda::keep_error({.code = cudaErrorInvalidValue, .call = "first", .file = "a.cu", .line = 1});
  kernels::cuda::keep_error({.code = cudaErrorInvalidValue, .call = "second", .file = "a.cu", .line = 2});
  EXPECT_THAT(take_kept_errors(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of 2 errors")));
  EXPECT_THAT(take_kept_errors(), IsOk());
}

}  // namespace
}  // namespace bascule::inline v0::cuda
