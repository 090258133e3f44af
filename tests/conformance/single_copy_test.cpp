// slots=1: the trainer's parameters live in the slot that the engines read; engines yield while the trainer writes.
#include <csignal>
#include <random>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/transport/status.h>

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

TEST_P(SingleCopyInPlace, ADroppedLoanOfASingleCopyThatWrotePoisonsUntilTheNextVersion) {
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

TEST_P(SingleCopyInPlace, ASingleCopysReaderThatDoesNotStepAsideIsNamedAndNobodyWrites) {
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

// ---- a trainer that keeps its loan ----

// Here a healthy trainer takes far less between a loan and its publish.
std::string short_loans() { return cat("slots=1&loan_timeout=", absl::ToInt64Milliseconds(silence()), "ms"); }

void expect_let_go(Worker& worker) {
  const Observed now = worker.wait_until([](const Observed& seen) { return seen.state == "poisoned" && seen.poisoned; },
                                         "being let go, poisoned");
  EXPECT_THAT(now.error, HasSubstr("half written, or may be"));
}

TEST_P(SingleCopyInPlace, ASingleCopysLoanThatIsKeptTooLongLetsItsReadersGoAndFailsByName) {
  listen(short_loans());
  const auto a = join("a", "slots=1"), b = join("b", "slots=1");
  wait_for_workers(2);
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<SendReport> report = step_and_publish(*this);
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get(), b.get()});
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    model_.step(++generation_);
    expect_let_go(*a);
    expect_let_go(*b);
    model_.step(++generation_);  // the trainer may still write
    EXPECT_THAT(sender_->publish(*std::move(slot)),
                StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("loan_timeout"), HasSubstr("poisoned"))));
  }
  wait_for_workers(2);
  const absl::StatusOr<SendReport> report = step_and_publish(*this);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->workers.size(), 2u);
  EXPECT_TRUE(report->complete());
  expect_newest({a.get(), b.get()});
  EXPECT_FALSE(a->report().poisoned);
}

TEST_P(SingleCopyInPlace, ASingleCopysLoanThatWasKeptTooLongAndWroteNothingGivesTheVersionBack) {
  listen(short_loans());
  const auto a = join("a", "slots=1"), b = join("b", "slots=1");
  wait_for_workers(2);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get(), b.get()});
  std::unique_ptr<Worker> late;
  {
    const absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    expect_let_go(*a);
    expect_let_go(*b);
    late = join("late", "slots=1");
    wait_for_workers(3);
    EXPECT_EQ(late->report().version, 0u) << "it is not known what the slot holds";
  }
  for (Worker* worker : {a.get(), b.get(), late.get()}) {
    const Observed again = worker->wait_until(
        [](const Observed& now) { return now.state == "serving" && !now.poisoned; }, "serving it again");
    EXPECT_EQ(again.version, 1u);
    const Observed later =
        worker->wait_until([&](const Observed& now) { return now.checks > again.checks + 5; }, "checks");
    EXPECT_EQ(later.wrong, "");
    EXPECT_EQ(later.flips, 1u) << "the same version is no flip";
    EXPECT_EQ(later.error, "");
  }
  wait_for_workers(3);
  const absl::StatusOr<SendReport> report = step_and_publish(*this);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete());
  expect_newest({a.get(), b.get(), late.get()});
}

TEST_P(SingleCopyInPlace, ASingleCopysLoanThatWasKeptTooLongAndDroppedWrittenPoisonsUntilTheNextVersion) {
  listen(short_loans());
  const auto a = join("a", "slots=1");
  wait_for_workers(1);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  {
    const absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    expect_let_go(*a);
    model_.step(++generation_);
  }
  { EXPECT_THAT(sender_->loan(), IsOk()); }  // it writes nothing, but the slot holds no version
  EXPECT_TRUE(a->report().poisoned);
  wait_for_workers(1);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get()});
  EXPECT_FALSE(a->report().poisoned);
}

TEST_P(SingleCopyInPlace, ACopyingReaderOfASingleCopyGoesOnBesideALoanThatIsKeptTooLong) {
  listen(short_loans());
  const auto a = join("a", "slots=1"), copying = join("copying", "slots=1", Apply::kCommit);
  wait_for_workers(2);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get(), copying.get()});
  absl::StatusOr<WritableSlot> slot = sender_->loan();
  ASSERT_THAT(slot, IsOk());
  model_.step(++generation_);
  expect_let_go(*a);
  const std::uint64_t checks = copying->report().checks;
  const Observed beside = copying->wait_until([&](const Observed& now) { return now.checks > checks + 5; }, "checks");
  EXPECT_EQ(beside.wrong, "");
  EXPECT_EQ(beside.state, "serving");
  EXPECT_FALSE(beside.poisoned) << "what it reads is its own";
  EXPECT_THAT(sender_->publish(*std::move(slot)), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("loan_timeout")));
  wait_for_workers(2);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  expect_newest({a.get(), copying.get()});
}

// Some loans come back in time and some late, written or not, published or not: unless poisoned, no reader reads a
// mixture.
TEST_P(SingleCopy, ASingleCopyIsReadWholeUnderLoansOfAnyLength) {
  constexpr int kLimitMs = 20 * kSlowdown;
  listen(cat("slots=1&loan_timeout=", kLimitMs, "ms"));
  const auto a = join("a", "slots=1"), b = join("b", "slots=1");
  wait_for_workers(2);
  ASSERT_THAT(step_and_publish(*this), IsOk());
  std::mt19937 random(5);
  int published = 0, lapsed = 0;
  for (int i = 0; i < 60; ++i) {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    const bool writes = random() % 4 != 0, publishes = random() % 3 != 0;
    if (writes) model_.step(++generation_);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (2 * kLimitMs)));
    if (writes) model_.step(++generation_);
    if (!publishes) continue;
    const absl::StatusOr<SendReport> report = sender_->publish(*std::move(slot));
    ++(report.ok() ? published : lapsed);
    EXPECT_TRUE(report.ok() || absl::IsDeadlineExceeded(report.status())) << report.status();
  }
  EXPECT_GT(published, 0);
  EXPECT_GT(lapsed, 0);
  absl::StatusOr<SendReport> last = step_and_publish(*this);
  for (int i = 0; i < 100 && !last.ok(); ++i) last = step_and_publish(*this);
  ASSERT_THAT(last, IsOk());
  for (Worker* const worker : {a.get(), b.get()}) {
    worker->wait_for_version(last->version);
    EXPECT_EQ(worker->report().wrong, "");
    EXPECT_FALSE(worker->report().poisoned);
  }
}

// ---- a trainer that dies ----

TEST_P(SingleCopyProcesses, ATrainerThatDiesHalfWayLeavesItsReadersPoisoned) {
  const auto a = join("a", "slots=1");
  {
    Trainer trainer(endpoint("slots=1"), 1, device());
    trainer.send_until(1, "step");
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
