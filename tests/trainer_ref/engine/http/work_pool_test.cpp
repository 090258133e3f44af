#include <bascule/trainer_ref/engine/http/work_pool.h>

#include <gmock/gmock.h>

#include <future>
#include <string>
#include <vector>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kSmall = 100, kLarge = std::size_t{1} << 20;

// Work that has begun and waits until the test lets it go on.
struct Held {
  std::promise<void> begun, released;
  WorkPool::Job job() {
    return [this](const std::stop_token& /*stop*/) {
      begun.set_value();
      released.get_future().wait();
    };
  }
};

TEST(WorkPool, LargeWorkHoldsUpNoSmallWork) {
  Held large;
  std::promise<void> second_ran;
  WorkPool pool(10);
  const auto first = pool.start(kLarge, large.job());
  large.begun.get_future().wait();
  const auto second = pool.start(kLarge, [&](const std::stop_token&) { second_ran.set_value(); });
  for (int i = 0; i < 20; ++i) {
    std::promise<void> ran;
    const auto small = pool.start(kSmall, [&](const std::stop_token&) { ran.set_value(); });
    ASSERT_TRUE(small.ok()) << small.status();
    ran.get_future().wait();
  }
  std::future<void> waits = second_ran.get_future();
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  large.released.set_value();
  waits.wait();
}

TEST(WorkPool, WorkOfOneSizeRunsInItsOrder) {
  std::vector<int> order;
  Held large;
  std::promise<void> last;
  WorkPool pool(10);
  const auto first = pool.start(kLarge, large.job());
  large.begun.get_future().wait();
  std::vector<WorkPool::Ticket> tickets;
  for (int i = 0; i < 3; ++i)
    tickets.push_back(*pool.start(kLarge, [&, i](const std::stop_token&) {
      order.push_back(i);
      if (i == 2) last.set_value();
    }));
  large.released.set_value();
  last.get_future().wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(WorkPool, RefusesMoreThanMayWaitUntilSomeIsGivenUp) {
  Held large;
  bool given_up_ran = false;
  std::promise<void> ran;
  WorkPool pool(1);
  const auto running = pool.start(kLarge, large.job());
  large.begun.get_future().wait();
  {
    const auto waiting = pool.start(kLarge, [&](const std::stop_token&) { given_up_ran = true; });
    ASSERT_TRUE(waiting.ok()) << waiting.status();
    const auto refused = pool.start(kLarge, [](const std::stop_token&) {});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("1 requests wait to be read; try again later"));
  }
  const auto instead = pool.start(kLarge, [&](const std::stop_token&) { ran.set_value(); });
  ASSERT_TRUE(instead.ok()) << instead.status();
  large.released.set_value();
  ran.get_future().wait();
  EXPECT_FALSE(given_up_ran);
}

TEST(WorkPool, RunningWorkIsAskedToStopWhenItIsGivenUp) {
  std::promise<void> begun, stopped;
  WorkPool pool(1);
  {
    const auto running = pool.start(kLarge, [&](const std::stop_token& stop) {
      begun.set_value();
      while (!stop.stop_requested()) std::this_thread::yield();
      stopped.set_value();
    });
    begun.get_future().wait();
  }
  stopped.get_future().wait();
}

TEST(WorkPool, ItsEndStopsRunningWorkAndWaitsForIt) {
  bool ended = false, other_ran = false;
  std::promise<void> begun;
  {
    std::vector<WorkPool::Ticket> outlive;
    WorkPool pool(1);
    outlive.push_back(*pool.start(kLarge, [&](const std::stop_token& stop) {
      begun.set_value();
      while (!stop.stop_requested()) std::this_thread::yield();
      ended = true;
    }));
    begun.get_future().wait();
    outlive.push_back(*pool.start(kLarge, [&](const std::stop_token&) { other_ran = true; }));
  }
  EXPECT_TRUE(ended);
  EXPECT_FALSE(other_ran);
}

}  // namespace
}  // namespace bascule::ref
