#include <bascule/transport/program/sync_flag.h>

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

TEST(CheckSync, TakesWhatMayWork) {
  EXPECT_THAT(check_sync("shm:///no/such/folder/yet", ComputesOn::kHost), IsOk());
  EXPECT_THAT(check_sync("memmap:///a?durable=on", ComputesOn::kGpu), IsOk());
}

TEST(CheckSync, RefusesWhatNeverWill) {
  EXPECT_THAT(check_sync("smh:///a", ComputesOn::kHost),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no scheme is called 'smh'")));
  EXPECT_THAT(check_sync("/a", ComputesOn::kHost), StatusIs(StatusCode::kInvalidArgument, HasSubstr("/a")));
  EXPECT_THAT(check_sync("shm:///a?digset=on", ComputesOn::kHost),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("digset")));
  EXPECT_THAT(check_sync("shm://node1:29500", ComputesOn::kHost),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot go to another machine")));
}

// A build without CUDA says that it has no such scheme, one with it that a CPU cannot read its slots.
TEST(CheckSync, RefusesSlotsOnAGpuForAProgramOnTheCpu) {
  const absl::Status status = check_sync("cuda-ipc:///a", ComputesOn::kHost);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("cuda-ipc"));
  if (absl::IsInvalidArgument(status)) {
    EXPECT_THAT(status.message(), HasSubstr("--device=cuda"));
  }
}

}  // namespace
}  // namespace bascule
