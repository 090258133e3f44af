#include <bascule/sender/program/sync_flag.h>

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

TEST(CheckSync, TakesWhatMayWork) {
  EXPECT_THAT(check_sync("shm:///no/such/folder/yet", ComputesOn::kHost, SyncEnd::kSender), IsOk());
  EXPECT_THAT(check_sync("memmap:///a?durable=on", ComputesOn::kGpu, SyncEnd::kSender), IsOk());
}

TEST(CheckSync, RefusesWhatNeverWill) {
  EXPECT_THAT(check_sync("smh:///a", ComputesOn::kHost, SyncEnd::kSender),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no scheme is called 'smh'")));
  EXPECT_THAT(check_sync("/a", ComputesOn::kHost, SyncEnd::kSender),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("/a")));
  EXPECT_THAT(check_sync("shm:///a?digset=on", ComputesOn::kHost, SyncEnd::kSender),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("digset")));
  EXPECT_THAT(check_sync("shm://node1:29500", ComputesOn::kHost, SyncEnd::kSender),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot go to another machine")));
}

// A build without CUDA says that it lacks the scheme; a build with CUDA says that a CPU cannot read its slots.
TEST(CheckSync, RefusesSlotsOnAGpuForAProgramOnTheCpu) {
  const absl::Status status = check_sync("cuda-ipc:///a", ComputesOn::kHost, SyncEnd::kSender);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("cuda-ipc"));
  if (absl::IsInvalidArgument(status)) {
    EXPECT_THAT(status.message(), HasSubstr("--device=cuda"));
  }
}

// auto serves engines on the CPU, but only from a trainer on a GPU.
TEST(CheckSync, RefusesATrainerOnTheCpuIfOnlyEnginesMayBeThere) {
  const auto end = [](SyncEnd which) { return check_sync("auto:///a", ComputesOn::kHost, which); };
  EXPECT_FALSE(end(SyncEnd::kSender).ok());
  if (absl::IsInvalidArgument(end(SyncEnd::kSender))) {  // else this build lacks CUDA
    EXPECT_THAT(end(SyncEnd::kSender).message(), HasSubstr("--device=cuda"));
    EXPECT_THAT(end(SyncEnd::kReceiver), IsOk());
  }
}

TEST(SlotsOnGpu, AreThoseOfTheSchemeThatBothEndsAre) {
  const auto on_gpu = [](std::string_view endpoint) { return keeps_slots_on_gpu(Endpoint::parse(endpoint).value()); };
  EXPECT_TRUE(on_gpu("auto:///a"));
  EXPECT_TRUE(on_gpu("auto://node1:29500"));
  EXPECT_TRUE(on_gpu("nccl://node1:29500"));
  EXPECT_TRUE(on_gpu("cuda-ipc:///a"));
  EXPECT_FALSE(on_gpu("shm:///a"));
  EXPECT_FALSE(on_gpu("memmap:///a"));
  EXPECT_FALSE(on_gpu("smh:///a"));
}

TEST(CheckSingleCopy, RefusesWhatCannotBeReadWhereItIsWritten) {
  const auto on_host = [](std::string_view endpoint) {
    return check_single_copy(endpoint, ComputesOn::kHost, DType::kF32);
  };
  for (const char* fine : {"shm:///a?slots=1", "shm:///a?slots=1&wire_dtype=f32", "memmap:///a?wire_dtype=bf16"})
    EXPECT_THAT(on_host(fine), IsOk()) << fine;
  EXPECT_THAT(on_host("shm:///a?slots=1&wire_dtype=bf16"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("F32 tensors are the slot, which are not cast to BF16; "
                                                               "leave wire_dtype out, or give slots=2")));
  EXPECT_THAT(on_host("memmap:///a?slots=1"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("or another scheme, as --sync=shm:///a?slots=1")));
  EXPECT_THAT(check_single_copy("shm:///a?slots=1", ComputesOn::kGpu, DType::kF32),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("lie on a GPU, and shm keeps its slots in host memory; give slots=2, or a scheme of "
                                 "GPUs, as --sync=cuda-ipc:///a?slots=1")));
  EXPECT_THAT(check_single_copy("shm:///a", ComputesOn::kGpu, DType::kF32), IsOk()) << "copies travel";
}

}  // namespace
}  // namespace bascule
