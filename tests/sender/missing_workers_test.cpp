// Sends after workers were lost, through the public calls.
#include "sender/wired.h"  // first: see there

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class MissingWorkers : public test::Wired {
 protected:
  std::unique_ptr<test::WireWorker> join(const std::string& name, std::uint64_t instance, int count) {
    auto worker = connect();
    worker->serve(name, instance);
    EXPECT_THAT(sender_->wait_for_workers(count, test::patience()), IsOk());
    return worker;
  }
  // Until the sender has noticed that it lost a worker.
  void wait_for_loss() {
    for (int i = 0; i < 10'000 && sender_->wait_for_workers(1, absl::Milliseconds(1)).ok(); ++i) continue;
    ASSERT_FALSE(sender_->wait_for_workers(1, absl::ZeroDuration()).ok());
  }
};

TEST_F(MissingWorkers, AVersionThatNobodyServesIsNotComplete) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  join("w", 1, 1)->hang_up();
  wait_for_loss();
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<SendReport> report = sender_->send();
    ASSERT_THAT(report, IsOk());
    EXPECT_FALSE(report->complete());
    EXPECT_THAT(report->workers, SizeIs(i == 0 ? 1 : 0));
    EXPECT_THAT(report->why_incomplete(), HasSubstr("expected at least 1 worker, found 0"));
  }
  ASSERT_THAT(sender_->expect_workers({.count = 0}), IsOk());
  EXPECT_TRUE(sender_->send()->complete());
}

// The trainer may never look at the updates.
TEST_F(MissingWorkers, AWorkerThatAnUpdateLostIsInTheNextReport) {
  listen("timeout=60s");
  ASSERT_THAT(sender_->expect_workers({.count = 0}), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  const auto worker = join("w", 1, 1);
  ASSERT_THAT(sender_->update_weights(), IsOk());
  worker->hang_up();
  ASSERT_THAT(sender_->update_weights(), IsOk());
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  ASSERT_THAT(report->updates, SizeIs(2));
  EXPECT_THAT(report->updates[1].workers, SizeIs(0));
  EXPECT_FALSE(report->complete());
  EXPECT_THAT(report->why_incomplete(), AllOf(HasSubstr("w is evicted"), HasSubstr("hung up")));
}

// A trainer that only ever updates must not collect reports without end.
TEST_F(MissingWorkers, TheReportHasTheLastUpdatesAndWhoWasLostInOlderOnes) {
  constexpr int kUpdates = 150;
  listen("timeout=60s");
  ASSERT_THAT(sender_->expect_workers({.count = 0}), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  const auto worker = join("w", 1, 1);
  ASSERT_THAT(sender_->update_weights(), IsOk());
  worker->hang_up();
  for (int i = 1; i < kUpdates; ++i) ASSERT_THAT(sender_->update_weights(), IsOk());
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  ASSERT_THAT(report->updates, SizeIs(100));
  EXPECT_EQ(report->updates.back().version, kUpdates + 1);
  EXPECT_THAT(report->warnings, testing::Contains(HasSubstr("50 older updates are left out")));
  EXPECT_THAT(report->why_incomplete(), AllOf(HasSubstr("w is evicted"), HasSubstr("hung up")));
  const absl::StatusOr<SendReport> next = sender_->send();
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT(next->updates, SizeIs(0));
  EXPECT_TRUE(next->complete());
}

TEST_F(MissingWorkers, AWaitForWorkersTellsWhichOnesArePoisonedAndWhy) {
  listen();
  ASSERT_THAT(sender_->expect_workers({.count = 0}), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  const auto worker = join("w", 1, 1);
  worker->say(Poisoned{.why = "tensor b did not fit"});
  wait_for_loss();
  EXPECT_THAT(sender_->wait_for_workers(1, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("found 0"), HasSubstr("w is poisoned: tensor b did not fit"))));
}

TEST_F(MissingWorkers, TheLogOfAnEvictionIsAWarning) {
  std::mutex mutex;
  std::string log, warned;
  const auto to = [&](std::string& where) {
    return [&](std::string_view line) {
      const std::lock_guard lock(mutex);
      where += line;
    };
  };
  auto made = Sender::listen({.endpoint = cat("shm://", folder_.path().string()), .log = to(log), .warn = to(warned)});
  ASSERT_THAT(made, IsOk());
  sender_.emplace(*std::move(made));
  model_.step(1);
  ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  join("w", 1, 1)->hang_up();
  wait_for_loss();
  sender_.reset();
  EXPECT_THAT(log, AllOf(HasSubstr("worker w joined"), testing::Not(HasSubstr("gave up"))));
  EXPECT_THAT(warned, HasSubstr("gave up w"));
}

TEST_F(MissingWorkers, ExpectedWorkersAreChecked) {
  listen();
  EXPECT_THAT(sender_->expect_workers({.count = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 or more, found -1")));
  EXPECT_THAT(sender_->expect_workers({.names = {""}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name is empty")));
  EXPECT_THAT(
      Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "/other"), .expect_workers{.count = -1}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expect_workers")));
}

}  // namespace
}  // namespace bascule
