// A follower, a rank above 0, that is asked for a version other than the one that it serves.
#include <gmock/gmock.h>

#include <array>
#include <string>
#include <thread>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;

// An engine may name an older version, for example one that it waited for. The follower does not wait for it again.
TEST(Follower, ThatServesANewerVersionDoesNotWaitForAnOlderOne) {
  const test::TempFolder folder;
  const std::string endpoint = cat("shm://", folder.path().string(), "/e?flip_timeout=2s&timeout=60s");
  const std::array<float, 4> data{1, 1, 1, 1};
  auto sender = Sender::listen({.endpoint = endpoint, .threads = 1});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(host_tensors({{{"w", DType::kF32, {4}}, data.data()}})), IsOk());
  const auto rank = [&](std::uint32_t number) {
    return Receiver::connect(
        {.endpoint = endpoint, .worker = cat("tp-", number), .group = "tp", .rank = number, .ranks = 2});
  };
  auto first = rank(0), second = rank(1);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  first->join(), second->join();
  ASSERT_THAT(sender->wait_for_workers(2, test::patience()), IsOk());
  std::thread engine([&] {
    const Deadline deadline(test::patience());
    for (Version served = 0; served < 2 && !deadline.passed(); std::this_thread::yield())
      if (const Flip flip = first->commit(); flip.changed) served = second->commit(flip.version).version;
  });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(sender->send(), IsOk());
  engine.join();
  ASSERT_THAT(second->wait_ready(1, absl::ZeroDuration()), IsOk());
  const Clock::time_point begun = Clock::now();
  const Flip flip = second->commit(1);
  EXPECT_LT(seconds_between(begun, Clock::now()), 1.5);
  EXPECT_EQ(flip.version, 2u);
  EXPECT_FALSE(flip.changed);
  EXPECT_FALSE(flip.poisoned);
}

}  // namespace
}  // namespace bascule
