// cuda-ipc over two GPUs: what the suite does not cover of a reader on a peer GPU.
#include <cstring>
#include <numeric>
#include <vector>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>

namespace bascule::test {
namespace {

class PeerTest : public Stage {
 protected:
  // Sends to `receiver` alone, and returns its flip.
  static Flip send_to(Sender& sender, Receiver& receiver) {
    EXPECT_THAT(sender.send_async(), IsOk());
    Flip flip;
    for (const Deadline deadline(patience()); !flip.changed && !deadline.passed();) flip = receiver.commit();
    const absl::StatusOr<SendReport> report = sender.wait_async(patience());
    EXPECT_THAT(report, IsOk());
    EXPECT_TRUE(report.ok() && report->complete());
    return flip;
  }
};
INSTANTIATE_TEST_SUITE_P(Peers, PeerTest, testing::Values(Setting{"cuda-ipc", Readers::kThreads}),
                         [](const testing::TestParamInfo<Setting>&) { return "Threads"; });

TEST_P(PeerTest, AReaderOnAPeerReadsACopyOfItsOwn) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs 2 GPU(s), found " << gpu_count();
  listen("digest=always");
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint("digest=always"), .worker = "peer", .device = 1});
  ASSERT_THAT(receiver, IsOk());
  if (!can_reach(1, 0)) {
    send();
    EXPECT_THAT(std::string(receiver->wait_ready(absl::Seconds(2)).message()), testing::HasSubstr("use shm"));
    return;
  }
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  wait_for_workers(1);
  for (int i = 0; i < 10; ++i) {
    model_.step(++generation_);
    const Flip flip = send_to(*sender_, *receiver);
    ASSERT_TRUE(flip.changed);
    const Weights& weights = receiver->weights(flip.slot);
    EXPECT_EQ(weights.tensors().front().device, 1);
    EXPECT_EQ(generation_of(weights.tensors(), ModelSize::kSmall).value_or(0), generation_);
  }
}

// The model is packed in pieces, and each is copied and digested while the next is packed. The last piece is short, and
// no piece ends where a tensor ends.
TEST_P(PeerTest, AModelOfManyPartsComesWholeBehindItsPack) {
  if (gpu_count() < 2) GTEST_SKIP() << "needs 2 GPU(s), found " << gpu_count();
  if (!can_reach(1, 0)) GTEST_SKIP() << "needs GPUs that read each other's memory";
  std::vector<std::int32_t> large(26'000'001), small(777);
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(
      sender->register_model(placed(
          std::make_unique<HostTensors>(std::vector<std::pair<TensorSpec, const void*>>{
              {{"large", DType::kI32, {26'000'001}}, large.data()}, {{"small", DType::kI32, {777}}, small.data()}}),
          0)),
      IsOk());
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint(), .worker = "peer", .device = 1});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  ASSERT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  for (int generation = 1; generation <= 6;
       ++generation) {  // in the first two the sender does not know who copies behind
    std::iota(large.begin(), large.end(), generation * 1'000'003);
    std::iota(small.begin(), small.end(), generation);
    const Flip flip = send_to(*sender, *receiver);
    ASSERT_TRUE(flip.changed);
    const auto holds = [&](const char* name, const std::vector<std::int32_t>& wanted) {
      const std::vector<std::byte> found = bytes_of(*receiver->weights(flip.slot).find(name));
      return found.size() == std::span(wanted).size_bytes() &&
             std::memcmp(found.data(), wanted.data(), found.size()) == 0;
    };
    EXPECT_TRUE(holds("large", large)) << "version " << generation;
    EXPECT_TRUE(holds("small", small)) << "version " << generation;
  }
}

// A context on the trainer's GPU would take half a GB of it for each reader, and most of the time of a join.
class PeerProcessTest : public ConformanceProcesses {};
INSTANTIATE_TEST_SUITE_P(Peers, PeerProcessTest,
                         testing::Values(Setting{"cuda-ipc", Readers::kProcesses, Place::kFolder, 0, 1}),
                         [](const testing::TestParamInfo<Setting>&) { return "Processes"; });

TEST_P(PeerProcessTest, AReaderOnAPeerLeavesNothingOnTheTrainersDevice) {
  listen();
  const auto a = join_process("a");
  wait_for_workers(1);
  for (int i = 0; i < 3; ++i) send_complete(1);
  expect_newest({a.get()});
  EXPECT_THAT(a->report().devices, testing::ElementsAre(1));
}

}  // namespace
}  // namespace bascule::test
