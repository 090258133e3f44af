// Tests that need two GPUs: streams and memory of the wrong one.
#include <cuda_runtime_api.h>

#include "pair.h"
#include "support/devices/gpu.h"
#include <bascule/transport/device.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::Filled;
using test::IsOk;
using test::patience;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class WrongDevice : public test::Pair {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(2); }
};

TEST_F(WrongDevice, AStreamIsRefusedWhenItIsGiven) {
  cudaStream_t const wrong = own_stream(1), right = own_stream();
  Filled weights(1), tensors(2);
  place_ = weights.data();
  const auto refused = StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("is one of device 1"), HasSubstr("expected one of device 0")));
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint("cuda-ipc")});
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(source(wrong)), refused);
  ASSERT_THAT(sender->register_model(source(right)), IsOk());
  EXPECT_THAT(sender->send(source(wrong)), refused) << "other weights";
  ASSERT_THAT(sender->send(), IsOk());
  EXPECT_THAT(
      Receiver::connect({.endpoint = endpoint("cuda-ipc"), .worker = "a", .device = 0, .stream = wrong}).status(),
      refused);
  absl::StatusOr<Receiver> copies =
      Receiver::connect({.endpoint = endpoint("cuda-ipc"), .worker = "b", .stream = wrong});
  ASSERT_THAT(copies, IsOk());
  EXPECT_THAT(copies->register_model({{.name = "model.norm",
                                       .dtype = DType::kU8,
                                       .shape = {static_cast<std::int64_t>(Filled::kBytes)},
                                       .data = static_cast<std::byte*>(tensors.data()),
                                       .device = 0}}),
              refused);
  // In place, on the device of slots that it does not know yet.
  absl::StatusOr<Receiver> in_place =
      Receiver::connect({.endpoint = endpoint("cuda-ipc"), .worker = "c", .stream = wrong});
  ASSERT_THAT(in_place, IsOk());
  for (const Deadline deadline(patience()); !deadline.passed();) {
    const std::string error(message_of(in_place->wait_ready(absl::Milliseconds(50))));
    if (error.find("is one of device 1") != std::string::npos) return;
  }
  FAIL() << in_place->status().error;
}

TEST_F(WrongDevice, MemoryOfAPeerIsRefusedUntilTheDeviceHasAccess) {
  int reaches = 0;
  ASSERT_EQ(cudaDeviceCanAccessPeer(&reaches, 0, 1), cudaSuccess);
  if (reaches == 0) GTEST_SKIP() << "needs peer access between GPUs 0 and 1";
  Filled weights(1, 1);  // of device 1
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  place_ = weights.data();
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint("cuda-ipc")});
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(source(nullptr)),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tensor model.norm"), HasSubstr("device 1"), HasSubstr("no peer access"))));
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_THAT(sender->register_model(source(nullptr)), IsOk());
  EXPECT_THAT(sender->send(), IsOk());
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
}

}  // namespace
}  // namespace bascule
