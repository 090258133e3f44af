// commit=each: every worker flips as soon as it is prepared, and none waits for another.
#include "conformance/suite.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST_P(Conformance, EachIsServedAsTogetherWhereAllAreHealthy) {
  listen("commit=each");
  const auto a = join("a"), b = join("b"), c = join("c");
  wait_for_workers(3);
  for (int i = 0; i < 10; ++i) send_complete(3);
  expect_newest({a.get(), b.get(), c.get()});
}

// b hangs in its preparation: with commit=together no worker would flip until b is given up, but here a flips at once.
class EachFaults : public Stage {};
INSTANTIATE_TEST_SUITE_P(Fake, EachFaults,
                         testing::Values(Setting{"fake", Readers::kThreads}, Setting{"fake", Readers::kProcesses}),
                         [](const testing::TestParamInfo<Setting>& setting) {
                           return setting.param.readers == Readers::kThreads ? "Threads" : "Processes";
                         });

TEST_P(EachFaults, EachFlipsWithoutWaitingForTheOthers) {
  listen("commit=each");
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  b->tell("fault prepare-hang 1");
  model_.step(++generation_);
  ASSERT_THAT(sender_->send_async(), IsOk());
  expect_newest({a.get()});
  EXPECT_EQ(b->report().version, 1u);
  EXPECT_THAT(sender_->wait_async(absl::Milliseconds(1)), StatusIs(StatusCode::kDeadlineExceeded, testing::_));
  b->tell("fault prepare-hang 0");  // it fails now, and a separate round serves it
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(entry(*report, "a").state, WorkerState::kServing);
  EXPECT_EQ(entry(*report, "b").state, WorkerState::kFailed);
  expect_newest({a.get(), b.get()});
  send_complete(2);
}

TEST_P(EachFaults, AVersionThatNobodyCanPrepareIsAborted) {
  listen("commit=each");
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  a->tell("fault prepare 1");
  b->tell("fault prepare 1");
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kAborted, HasSubstr("could not prepare version 2")));
  EXPECT_EQ(sender_->version(), 1u);
  send_complete(2);
  expect_newest({a.get(), b.get()});
}

}  // namespace
}  // namespace bascule::test
