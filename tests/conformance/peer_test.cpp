// cuda-ipc over two GPUs: a reader on a peer of the trainer's device.
#include <cuda_runtime_api.h>

#include "conformance/suite.h"
#include "receiver/receiver.h"

namespace bascule::test {
namespace {

class PeerTest : public Stage {};
INSTANTIATE_TEST_SUITE_P(Peers, PeerTest, testing::Values(Setting{"cuda-ipc", Readers::kThreads}),
                         [](const testing::TestParamInfo<Setting>&) { return "Threads"; });

TEST_P(PeerTest, AReaderOnAPeerReadsACopyOfItsOwn) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs 2 GPU(s), found " << gpu_count();
  int reaches = 0;
  ASSERT_EQ(cudaDeviceCanAccessPeer(&reaches, 1, 0), cudaSuccess);
  listen("digest=always");
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint("digest=always"), .worker = "peer", .device = 1});
  ASSERT_THAT(receiver, IsOk());
  if (reaches == 0) {
    send();
    EXPECT_THAT(std::string(receiver->wait_ready(absl::Seconds(2)).message()), testing::HasSubstr("use shm"));
    return;
  }
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  wait_for_workers(1);
  for (int i = 0; i < 10; ++i) {
    model_.step(++generation_);
    ASSERT_THAT(sender_->send_async(), IsOk());
    Flip flip;
    for (const Deadline deadline(patience()); !flip.changed && !deadline.passed();) flip = receiver->commit();
    const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    const Weights& weights = receiver->weights(flip.slot);
    EXPECT_EQ(weights.tensors().front().device, 1);
    EXPECT_EQ(generation_of(weights.tensors(), ModelSize::kSmall).value_or(0), generation_);
  }
}

}  // namespace
}  // namespace bascule::test
