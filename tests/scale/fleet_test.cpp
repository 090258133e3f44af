// A thousand workers of one sender over a Unix socket: each that joins is welcomed, and every version reaches all.
#include <bascule/bench/fake_fleet.h>  // first: Asio

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/bench/model.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/acceptor.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/program/descriptors.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using bench::FakeFleet;
using test::IsOk;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr bool kSanitized = test::kSlowdown > 1;
constexpr int kThousand = kSanitized ? 128 : 1024;
constexpr int kHundreds = kSanitized ? 64 : 512;
constexpr std::uint64_t kTensors = 338, kVeryManyTensors = kSanitized ? 5'000 : 100'000;

// The fleet's workers run only while the test serves them, which it does whenever it waits.
class Scale : public testing::Test {
 protected:
  static void SetUpTestSuite() { raise_descriptor_limit(); }  // this process has both ends of each connection

  void listen(std::uint64_t tensors, std::string_view options = "suspect_after=20s") {
    const std::string url = cat("shm://", folder_.path().string(), "?", options);
    auto made = Sender::listen({.endpoint = url, .threads = 1, .log = [this](std::string_view line) {
                                  const std::lock_guard lock(mutex_);
                                  log_.emplace_back(line);
                                }});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    auto model = bench::Model::make(bench::fleet_model(tensors), 1, pool_);
    ASSERT_THAT(model, IsOk());
    model_.emplace(*std::move(model));
    ASSERT_THAT(model_->step(1), IsOk());
    ASSERT_THAT(sender_->register_model(model_->source()), IsOk());
    fleet_.emplace(Endpoint::parse(url).value(), bench::fleet_specs(tensors).value());
  }
  // Adds `count` workers at once; returns once they serve the newest version.
  void join(int count) {
    const int expected = fleet_->serving() + count;
    ASSERT_THAT(fleet_->join(count), IsOk());
    fleet_->run_until([&] { return fleet_->serving() == expected || fleet_->lost() > 0; }, Deadline(3 * patience()));
    EXPECT_EQ(fleet_->serving(), expected);
    EXPECT_EQ(fleet_->lost(), 0) << fleet_->why();
    ASSERT_THAT(sender_->wait_for_workers(expected, patience()), IsOk());
  }
  static absl::Duration patience() { return test::patience(); }
  // Sends to all workers; returns how many serve the version.
  long send() {
    EXPECT_THAT(sender_->send_async(), IsOk());
    absl::StatusOr<SendReport> report = deadline_exceeded("not settled");
    fleet_->run_until(
        [&] {
          if (absl::IsDeadlineExceeded(report.status())) report = sender_->wait_async(absl::Milliseconds(1));
          return !absl::IsDeadlineExceeded(report.status());
        },
        Deadline(3 * patience()));
    EXPECT_THAT(report, IsOk());
    if (!report.ok()) return 0;
    return std::ranges::count(report->workers, WorkerState::kServing, &WorkerReport::state);
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  const test::TempFolder folder_;
  kernels::ThreadPool pool_{1};
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::optional<bench::Model> model_;
  std::optional<Sender> sender_;
  std::optional<FakeFleet> fleet_;
};

TEST_F(Scale, AThousandJoinAtOnceAndEachSendReachesAll) {
  ASSERT_GE(kMaxNewcomers, static_cast<std::size_t>(kThousand));
  listen(kTensors);
  EXPECT_EQ(send(), 0);
  join(kThousand);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(send(), kThousand);
  EXPECT_THAT(log(), Not(Contains(HasSubstr("refused"))));
}

TEST_F(Scale, WhereOneDiesTheOthersFlip) {
  listen(kTensors);
  EXPECT_EQ(send(), 0);
  join(kHundreds);
  EXPECT_EQ(send(), kHundreds);
  fleet_->kill_when_sealed();
  EXPECT_EQ(send(), kHundreds - 1);
  EXPECT_EQ(send(), kHundreds - 1);
  EXPECT_EQ(fleet_->lost(), 0) << fleet_->why();
  join(1);
  EXPECT_EQ(send(), kHundreds);
}

// Silent peers are given up soon here. Meanwhile each side receives only the other's heartbeats.
TEST_F(Scale, HeartbeatsKeepAllOfThemAndTheirSender) {
  listen(kTensors, cat("heartbeat=100ms&suspect_after=", absl::ToInt64Milliseconds(4 * test::silence()), "ms"));
  EXPECT_EQ(send(), 0);
  join(kHundreds);
  fleet_->run_until([] { return false; }, Deadline(6 * test::silence()));
  EXPECT_EQ(fleet_->lost(), 0) << fleet_->why();
  EXPECT_EQ(send(), kHundreds);
}

TEST_F(Scale, ManyWorkersOfAVeryLargeModelAllJoinAndNoneIsEvicted) {
  constexpr int kWorkers = 24;
  // All workers are one thread here, which reads 9 MB for each of them in turn: on a busy machine no worker says
  // anything for longer than the usual 20 s.
  listen(kVeryManyTensors, "suspect_after=90s");
  ASSERT_THAT(fleet_->join(kWorkers), IsOk());
  const auto all_there = [&] { return sender_->wait_for_workers(kWorkers, absl::Milliseconds(1)).ok(); };
  fleet_->run_until(all_there, Deadline(3 * patience()));
  ASSERT_TRUE(all_there());
  EXPECT_EQ(send(), kWorkers);  // welcomed only now
  EXPECT_EQ(fleet_->lost(), 0) << fleet_->why();
  EXPECT_THAT(log(), Not(Contains(HasSubstr("gave up"))));
}

}  // namespace
}  // namespace bascule
