// auto: engines on the trainer's GPU, on a peer GPU and on the host take one version, each by its own path.
#include <map>
#include <thread>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

class CudaAuto : public Stage {};
INSTANTIATE_TEST_SUITE_P(CudaAuto, CudaAuto, testing::Values(Setting{"auto", Readers::kThreads}),
                         [](const testing::TestParamInfo<Setting>&) { return "Threads"; });

TEST_P(CudaAuto, OneVersionReachesEachEngineInItsOwnWay) {
  listen("digest=always");
  std::vector<int> devices = {0, kHost};
  if (gpu_count() > 1 && can_reach(1, 0)) devices.insert(devices.end(), {1, 1});
  std::vector<std::unique_ptr<Receiver>> engines;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    absl::StatusOr<Receiver> engine =
        Receiver::connect({.endpoint = endpoint("digest=always"), .worker = cat("engine ", i), .device = devices[i]});
    ASSERT_THAT(engine, IsOk());
    engines.push_back(std::make_unique<Receiver>(*std::move(engine)));
    EXPECT_FALSE(engines.back()->wait_ready(absl::ZeroDuration()).ok());
  }
  wait_for_workers(static_cast<int>(devices.size()));
  for (int version = 1; version <= 6; ++version) {
    model_.step(++generation_);
    ASSERT_THAT(sender_->send_async(), IsOk());
    std::map<std::size_t, Flip> flips;
    for (const Deadline deadline(patience()); flips.size() < engines.size() && !deadline.passed();)
      for (std::size_t i = 0; i < engines.size(); ++i)
        if (const Flip flip = engines[i]->commit(); flip.changed) flips[i] = flip;
    const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(report->complete());
    for (const auto& [i, flip] : flips) {
      const Weights& weights = engines[i]->weights(flip.slot);
      EXPECT_EQ(weights.tensors().front().device, devices[i]);
      EXPECT_EQ(generation_of(weights.tensors(), ModelSize::kSmall).value_or(0), generation_) << "engine " << i;
    }
  }
}

}  // namespace
}  // namespace bascule::test
