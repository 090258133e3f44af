// Faults of a scheme, injected at each call of the fake scheme: no worker flips to a version that is not whole, and the
// next version is served.
#include <csignal>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class Faults : public Stage {};
INSTANTIATE_TEST_SUITE_P(Fake, Faults,
                         testing::Values(Setting{"fake", Readers::kThreads}, Setting{"fake", Readers::kProcesses}),
                         [](const testing::TestParamInfo<Setting>& setting) {
                           return setting.param.readers == Readers::kThreads ? "Threads" : "Processes";
                         });

TEST_P(Faults, ACorruptedByteFailsTheVersionAndTheOldOneStays) {
  listen("digest=always");
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const Observed before = a->report();
  faults_.set("corrupt", 1);
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(),
              StatusIs(StatusCode::kAborted, AllOf(HasSubstr("worker "), HasSubstr("version 2"), HasSubstr("digest"))));
  EXPECT_EQ(sender_->version(), 1u);
  for (Worker* worker : {a.get(), b.get()}) {
    EXPECT_EQ(worker->report().version, 1u);
    EXPECT_EQ(worker->report().generation, before.generation);
  }
  EXPECT_EQ(send_complete(2).version, 3u) << "a number that was aborted is not used again";
  expect_newest({a.get(), b.get()});
}

TEST_P(Faults, AWorkerThatFailsTwoVersionsRunningIsEvictedAsPoisoned) {
  listen("digest=always");
  const auto bad = join("bad"), good = join("good");
  wait_for_workers(2);
  send_complete(2);
  bad->tell("fault misread 2");
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kAborted, HasSubstr("worker bad could not prepare version 2")));
  const SendReport report = send();
  EXPECT_EQ(entry(report, "bad").state, WorkerState::kEvicted);
  EXPECT_THAT(entry(report, "bad").error, StatusIs(StatusCode::kAborted, HasSubstr("poisoned")));
  EXPECT_EQ(entry(report, "good").state, WorkerState::kServing);
  expect_newest({good.get()});
  // By the time it came back, it read correctly again.
  expect_newest({bad.get()});
  wait_for_workers(2);
  send_complete(2);
}

TEST_P(Faults, AFailureBetweenTwoGoodVersionsPoisonsNobody) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  for (int i = 0; i < 3; ++i) {
    send_complete(1);
    a->tell("fault prepare 1");
    model_.step(++generation_);
    EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kAborted, HasSubstr("worker a")));
  }
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Faults, AWorkerThatCannotBeAdmittedIsToldAndTriesAgain) {
  listen();
  send();
  faults_.set("admit", 2);
  const auto a = join("a");
  expect_newest({a.get()});
}

TEST_P(Faults, AWorkerThatCannotReachTheMemoryTriesAgain) {
  listen();
  send();
  const auto a = start("a");
  a->tell("fault accept 2");
  a->tell("run");
  expect_newest({a.get()});
  wait_for_workers(1);
  send_complete(1);
}

// Its lease must hold through the second try, so that the slot that it then serves is not written.
TEST_P(Faults, ALateJoinerThatFailsOnceIsTriedAgainUnderOneLease) {
  listen(hasty());
  send();
  const auto late = start("late", hasty());
  late->tell("fault prepare 1");
  late->tell("run");
  expect_newest({late.get()});
  const Observed before = late->report();
  late->tell("hold");
  send();  // evicts it
  for (int i = 0; i < 3; ++i) send();
  const Observed held =
      late->wait_until([&](const Observed& now) { return now.checks > before.checks + 5; }, "more checks");
  EXPECT_EQ(held.wrong, "");
  EXPECT_EQ(held.generation, before.generation);
  late->tell("run");
  expect_newest({late.get()});
}

TEST_P(Faults, ADeliveryThatFailsAbortsTheVersionForAll) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  faults_.set("deliver", 1);
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(),
              StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("deliver version 2"), HasSubstr("told to fail"))));
  EXPECT_EQ(send_complete(2).version, 3u);
  expect_newest({a.get(), b.get()});
}

TEST_P(Faults, ADeliveryThatHangsEndsWithItsDeadline) {
  const auto limit = absl::ToInt64Milliseconds(silence());
  listen(cat("suspect_after=", absl::ToInt64Milliseconds(patience()),
             "ms&flip_timeout=", absl::ToInt64Milliseconds(patience()), "ms&timeout=", limit, "ms"));
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  faults_.set("deliver-hang", 1);
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("version 2")));
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Faults, AWorkerThatHangsInPrepareIsEvictedAndTheOthersGoOn) {
  listen(cat("suspect_after=", absl::ToInt64Milliseconds(patience()), "ms&flip_timeout=",
             absl::ToInt64Milliseconds(patience()), "ms&timeout=", absl::ToInt64Milliseconds(silence()), "ms"));
  const auto stuck = join("stuck"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  stuck->tell("fault prepare-hang 1");
  const SendReport report = send();
  EXPECT_EQ(entry(report, "stuck").state, WorkerState::kEvicted);
  EXPECT_THAT(entry(report, "stuck").error, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("prepared")));
  EXPECT_EQ(entry(report, "b").state, WorkerState::kServing);
  stuck->tell("fault prepare-hang 0");
  expect_newest({stuck.get(), b.get()});
}

// ---- a trainer that dies with a version on its way ----

class FaultsOfProcesses : public Stage {};
INSTANTIATE_TEST_SUITE_P(Fake, FaultsOfProcesses, testing::Values(Setting{"fake", Readers::kProcesses}),
                         [](const testing::TestParamInfo<Setting>&) { return "Processes"; });

// `begin` starts version 2, and then the trainer is killed. No worker may ever serve it, and the next one is served.
TEST_P(FaultsOfProcesses, AVersionThatWasNotCommittedGoesWithItsTrainer) {
  for (const bool prepared : {false, true}) {
    SCOPED_TRACE(prepared ? "one worker had it prepared" : "its bytes were on their way");
    const auto a = join("a"), b = join("b");
    Sent sent;
    {
      Trainer trainer(endpoint(), 1, device());
      sent = trainer.send_until(2);
      if (prepared) {
        b->tell("fault prepare-hang 1");
      } else {
        EXPECT_EQ(trainer.tell("fault deliver-hang 1").error, "");
      }
      EXPECT_EQ(trainer.tell("begin").error, "");
      trainer.process().signal(SIGKILL);
    }
    b->tell("fault prepare-hang 0");
    for (Worker* worker : {a.get(), b.get()}) {
      const Observed alone = worker->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
      EXPECT_EQ(alone.version, sent.version);
      EXPECT_EQ(alone.generation, sent.generation);
    }
    generation_ = 100;
    listen();
    wait_for_workers(2);
    EXPECT_GT(send_complete(2).version, sent.version + 1) << "the number of the lost version is not used again";
    expect_newest({a.get(), b.get()});
    sender_.reset();
  }
}

}  // namespace
}  // namespace bascule::test
