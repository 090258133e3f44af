// SenderOptions::interrupted: what an interrupted call returns, and how its send ends.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <string>

#include "support/processes/worker.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class Interrupted : public testing::Test {
 protected:
  void SetUp() override {
    SenderOptions options{.endpoint = endpoint_, .threads = 1};
    options.interrupted = [this] { return interrupts_ > 0 && interrupts_-- > 0; };
    absl::StatusOr<Sender> listening = Sender::listen(std::move(options));
    ASSERT_THAT(listening, IsOk());
    sender_.emplace(*std::move(listening));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
    model_.step(1);
  }
  // The next wait ends, and no later one.
  void interrupt() { interrupts_ = 1; }
  static auto is_interrupted(const std::string& text) { return StatusIs(StatusCode::kCancelled, HasSubstr(text)); }

  TempFolder folder_;
  const std::string endpoint_ =
      cat("shm://", (folder_.path() / "endpoint").string(), "?timeout=", absl::ToInt64Milliseconds(patience()),
          "ms&flip_timeout=", absl::ToInt64Milliseconds(patience()), "ms");
  TestModel model_{ModelSize::kTiny};
  std::atomic<int> interrupts_ = 0;
  std::optional<Sender> sender_;
};

TEST_F(Interrupted, WaitForWorkers) {
  interrupt();
  EXPECT_THAT(sender_->wait_for_workers(1, patience()), is_interrupted("workers"));
  EXPECT_THAT(sender_->wait_for_workers(1, absl::Milliseconds(1)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("")));
}

TEST_F(Interrupted, ASendGoesOnAndTheNextReportHasIt) {
  WorkerThread worker({.endpoint = endpoint_, .name = "a", .model = ModelSize::kTiny});
  worker.tell("join");
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  interrupt();
  EXPECT_THAT(sender_->send(), is_interrupted("settles"));
  EXPECT_EQ(interrupts_, 0);
  worker.tell("run");
  model_.step(2);
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
  ASSERT_EQ(report->updates.size(), 1u);
  EXPECT_EQ(report->updates[0].version, 1u);
  EXPECT_THAT(report->updates[0].status, IsOk());
}

TEST_F(Interrupted, AnAsyncSendStaysPending) {
  WorkerThread worker({.endpoint = endpoint_, .name = "a", .model = ModelSize::kTiny});
  worker.tell("join");
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  ASSERT_THAT(sender_->send_async(), IsOk());
  interrupt();
  EXPECT_THAT(sender_->wait_async(), is_interrupted("stays pending"));
  worker.tell("run");
  const absl::StatusOr<SendReport> report = sender_->wait_async();
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
}

}  // namespace
}  // namespace bascule::test
