// slots=1: the trainer's parameters live in the slot that the engines read; they step aside while it writes.
#include <csignal>

#include "conformance/suite.h"
#include "support/trainer.h"
#include "transport/text.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// loan, optimizer.step(), publish.
absl::StatusOr<SendReport> step_and_publish(Stage& stage) {
  absl::StatusOr<WritableSlot> slot = stage.sender_->loan();
  if (!slot.ok()) return slot.status();
  stage.model_.step(++stage.generation_);
  return stage.sender_->publish(*std::move(slot));
}

TEST_P(SingleCopy, ASingleCopyIsReadWholeInTheTrainersOwnParameters) {
  listen("slots=1");
  const auto a = join("a", "slots=1"), b = join("b", "slots=1");
  wait_for_workers(2);
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<SendReport> report = step_and_publish(*this);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->workers.size(), 2u);
    EXPECT_TRUE(report->complete());
    expect_newest({a.get(), b.get()});
  }
}

TEST_P(SingleCopy, ASingleCopyRefusesASendWithoutALoanAndACast) {
  listen("slots=1");
  for (const absl::Status& refused : {sender_->send().status(), sender_->send_async(), sender_->update_weights()})
    EXPECT_THAT(refused, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("use loan(), step, publish()")));
  sender_.reset();
  absl::StatusOr<Sender> casting = try_listen("slots=1&wire_dtype=bf16");
  ASSERT_THAT(casting, IsOk());
  TestModel other;
  EXPECT_THAT(casting->register_model(other.source()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot be cast")));
}

TEST_P(SingleCopy, ASingleCopysLateJoinerIsServedBetweenTwoSteps) {
  listen("slots=1");
  ASSERT_THAT(step_and_publish(*this), IsOk());
  const auto late = join("late", "slots=1");
  expect_newest({late.get()});
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({late.get()});
}

TEST_P(SingleCopy, ADroppedLoanOfASingleCopyThatWroteNothingLeavesTheVersion) {
  listen("slots=1");
  const auto a = join("a", "slots=1");
  wait_for_workers(1);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  { ASSERT_THAT(sender_->loan(), IsOk()); }
  const Observed after = a->wait_until([](const Observed& now) { return now.checks > 20; }, "checks after the loan");
  EXPECT_EQ(after.version, 1u);
  EXPECT_EQ(after.wrong, "");
  EXPECT_FALSE(after.poisoned);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get()});
}

TEST_P(SingleCopy, ADroppedLoanOfASingleCopyThatWrotePoisonsUntilTheNextVersion) {
  listen("slots=1");
  const auto a = join("a", "slots=1");
  wait_for_workers(1);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    model_.step(++generation_);
  }
  a->wait_until([](const Observed& now) { return now.state == "poisoned" && now.poisoned; }, "being poisoned");
  EXPECT_THAT(a->report().error, HasSubstr("half written"));
  const absl::StatusOr<SendReport> report = step_and_publish(*this);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
  expect_newest({a.get()});
  EXPECT_FALSE(a->report().poisoned);
}

TEST_P(SingleCopy, ASingleCopysReaderThatDoesNotStepAsideIsNamedAndNobodyWrites) {
  const auto limit = absl::ToInt64Milliseconds(silence());
  const std::string options = cat("suspect_after=", absl::ToInt64Milliseconds(patience()), "ms&flip_timeout=", limit,
                                  "ms&timeout=", limit, "ms");
  listen(cat("slots=1&", options));
  const auto a = join("a", cat("slots=1&", options)), slow = join("slow", cat("slots=1&", options));
  wait_for_workers(2);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  slow->tell("hold");
  EXPECT_THAT(sender_->loan(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("slow")));
  EXPECT_EQ(a->wait_until([](const Observed& now) { return now.checks > 5; }, "checks").wrong, "");
  EXPECT_EQ(slow->report().wrong, "");
  slow->tell("run");
  wait_for_workers(2);
  absl::StatusOr<SendReport> report = step_and_publish(*this);
  for (int i = 0; i < 5 && !report.ok(); ++i) report = step_and_publish(*this);
  ASSERT_THAT(report, IsOk());
  expect_newest({a.get(), slow.get()});
}

// ---- a trainer that dies ----

TEST_P(SingleCopyProcesses, ATrainerThatDiesHalfWayLeavesItsReadersPoisoned) {
  const auto a = join("a", "slots=1");
  {
    Trainer trainer(endpoint("slots=1"), 1, device());
    Sent sent;
    for (const Deadline deadline(patience()); sent.serving < 1 && !deadline.passed();) sent = trainer.tell("step");
    EXPECT_EQ(trainer.tell("loan").error, "");
    trainer.process().signal(SIGKILL);
  }
  a->wait_until([](const Observed& now) { return now.state == "poisoned"; }, "being poisoned");
  EXPECT_THAT(a->report().error, HasSubstr("single copy"));
  generation_ = 100;
  listen("slots=1");
  wait_for_workers(1);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get()});
}

}  // namespace
}  // namespace bascule::test
