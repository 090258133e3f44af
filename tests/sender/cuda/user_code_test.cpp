// The user's own use of the device: errors that it ignores, captures, invalid memory.
#include <cuda_runtime_api.h>

#include "pair.h"
#include "support/devices/captures.h"
#include "support/devices/gpu.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::Capture;
using test::CapturingThread;
using test::Filled;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class UserCode : public test::Pair {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }
  static void leave_an_error() {
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, std::size_t{1} << 60), cudaErrorMemoryAllocation);
  }
};

// ---- errors ----

class UserErrors : public UserCode, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, UserErrors, testing::Values("cuda-ipc", "shm", "memmap"),
                         [](const testing::TestParamInfo<const char*>& scheme) {
                           return scheme.param[0] == 'c' ? "CudaIpc" : scheme.param[0] == 's' ? "Shm" : "Memmap";
                         });

TEST_P(UserErrors, ThatAreIgnoredFailNoSendAndNoFlipAndStay) {
  for (const bool targets : {false, true}) {
    cudaStream_t const stream = own_stream(), engine = own_stream();
    Filled weights(1), tensors(0xee);
    place_ = weights.data();
    leave_an_error();
    listen(GetParam(), stream);
    targets ? join_with_targets(GetParam(), engine, tensors, Apply::kCommit) : join(GetParam(), engine);
    ASSERT_NO_FATAL_FAILURE(expect_engine());
    for (int value = 1; value <= 4; ++value) {
      EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "the user's, still";
      weights.fill(value);
      leave_an_error();
      ASSERT_THAT(send(), IsOk());
      EXPECT_FALSE(served_.poisoned);
      EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
      EXPECT_EQ(bytes_of(value), Filled::kBytes);
    }
    receiver_.reset();
    sender_.reset();
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "of destructors, too";
  }
}

// ---- captures ----

// The same addresses as in the refused send, which must not count as having checked them.
TEST_F(UserCode, ASendInACaptureOfItsStreamIsRefusedAndTheNextOneIsRight) {
  cudaStream_t const engine = own_stream();
  Filled first(1), second(2);
  place_ = first.data();
  Capture capture(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal);
  ASSERT_TRUE(capture.end());
  listen("cuda-ipc", capture.stream());
  join("cuda-ipc", engine);
  ASSERT_NO_FATAL_FAILURE(expect_engine());
  ASSERT_THAT(send(), IsOk());
  EXPECT_EQ(bytes_of(1), Filled::kBytes);
  place_ = second.data();
  capture.begin(cudaStreamCaptureModeGlobal);
  EXPECT_THAT(sender_->send(),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("send()"), HasSubstr("is being captured"))));
  EXPECT_TRUE(capture.end()) << "the capture continues, and contains nothing of ours";
  ASSERT_THAT(send(), IsOk());
  EXPECT_EQ(bytes_of(2), Filled::kBytes);
}

// The default stream waits for blocking streams; in the global mode CUDA refuses calls of other threads that may be
// unsafe. Meanwhile plans are made, slots mapped and marks recorded, and freed again.
TEST_F(UserCode, CapturesOfOtherThreadsDisturbNoSendAndAreNotDisturbed) {
  for (const char* const scheme : {"cuda-ipc", "shm"}) {
    for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
      cudaStream_t const stream = own_stream(), engine = own_stream();
      Filled weights(1), others(2), tensors(0xee);
      place_ = weights.data();
      CapturingThread captures(flags, cudaStreamCaptureModeGlobal);
      listen(scheme, stream);
      join_with_targets(scheme, engine, tensors, Apply::kBackground);
      ASSERT_NO_FATAL_FAILURE(expect_engine());
      for (int i = 1; i <= 25; ++i) {
        place_ = i % 2 == 1 ? weights.data() : others.data();
        ASSERT_THAT(send(), IsOk()) << scheme << ", send " << i;
      }
      receiver_.reset();
      sender_.reset();
      captures.stop();
      EXPECT_EQ(captures.broken(), 0) << "of " << captures.ended() << " captures, " << scheme;
      EXPECT_GT(captures.ended(), 0);
    }
  }
}

// The sending thread captures another stream meanwhile.
TEST_F(UserCode, ASendBehindAnotherStreamThanTheOneThatItsThreadCapturesGoesThrough) {
  cudaStream_t const stream = own_stream(), engine = own_stream();
  Filled weights(3);
  place_ = weights.data();
  listen("cuda-ipc", stream);
  join("cuda-ipc", engine);
  ASSERT_NO_FATAL_FAILURE(expect_engine());
  Capture capture(cudaStreamDefault, cudaStreamCaptureModeGlobal);
  const absl::Status sent = send();
  EXPECT_TRUE(capture.end());
  EXPECT_THAT(sent, IsOk());
  EXPECT_EQ(bytes_of(3), Filled::kBytes);
}

// ---- memory ----

class UserMemory : public UserCode, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, UserMemory, testing::Values("cuda-ipc", "shm"),
                         [](const testing::TestParamInfo<const char*>& scheme) {
                           return scheme.param[0] == 'c' ? "CudaIpc" : "Shm";
                         });

TEST_P(UserMemory, ThatIsNotTheDevicesIsRefusedWhenItIsRegisteredAndWhenItMoves) {
  std::vector<std::byte> pageable(Filled::kBytes);
  const auto refused = StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("tensor model.norm"), HasSubstr("memory that CUDA does not know")));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a view into no storage has this pointer
  void* const none = reinterpret_cast<void*>(std::uintptr_t{8});
  {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint(GetParam())});
    ASSERT_THAT(sender, IsOk());
    for (void* const wrong : {static_cast<void*>(pageable.data()), none}) {
      place_ = wrong;
      EXPECT_THAT(sender->register_model(source(nullptr)), refused);
    }
  }
  cudaStream_t const engine = own_stream();
  Filled weights(1), moved(2);
  place_ = weights.data();
  listen(GetParam(), nullptr);
  join(GetParam(), engine);
  ASSERT_NO_FATAL_FAILURE(expect_engine());
  ASSERT_THAT(send(), IsOk());
  for (void* const wrong : {static_cast<void*>(pageable.data()), none}) {
    place_ = wrong;
    EXPECT_THAT(sender_->send(), refused);
    EXPECT_THAT(sender_->send(source(nullptr)), refused) << "other weights";
  }
  place_ = moved.data();
  ASSERT_THAT(send(), IsOk());
  EXPECT_EQ(bytes_of(2), Filled::kBytes);
}

TEST_F(UserCode, TargetsThatAreNotTheDevicesAreRefused) {
  std::vector<std::byte> pageable(16);
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint("shm"), .worker = "engine"});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->register_model(
                  {{.name = "model.norm", .dtype = DType::kU8, .shape = {16}, .data = pageable.data(), .device = 0}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tensor model.norm"), HasSubstr("memory that CUDA does not know"))));
}

}  // namespace
}  // namespace bascule
