// Engines that make their own weights of a version: take(), then finish().
#include "conformance/suite.h"

#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::_;
using testing::AllOf;
using testing::HasSubstr;

std::string within(std::string_view option, absl::Duration limit) {
  return cat(option, "=", absl::ToInt64Milliseconds(limit), "ms");
}

absl::Status begin_send(Sender& sender, TestModel& model, std::uint64_t generation) {
  model.step(generation);
  return sender.send_async();
}

// Takes and checks the next version, from a send that is under way.
Observed take_next(Worker& worker, Version version) {
  EXPECT_EQ(worker.wait_ready(patience(), version), "");
  Observed seen = worker.take();
  EXPECT_EQ(seen.version, version);
  EXPECT_EQ(seen.wrong, "");
  EXPECT_EQ(worker.wait_until([](const Observed& now) { return now.state == "loading"; }, "loading").wrong, "");
  return seen;
}

TEST_P(Conformance, ASendReturnsOnceTheEngineHasLoaded) {
  listen();
  const auto a = start("a"), b = join("b");
  a->tell("join");
  wait_for_workers(2);  // before its first commit
  for (Version version = 1; version <= 3; ++version) {
    ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
    EXPECT_EQ(take_next(*a, version).generation, generation_);
    EXPECT_THAT(sender_->wait_async(absl::Milliseconds(20)), StatusIs(StatusCode::kDeadlineExceeded, _));
    EXPECT_EQ(a->take().flips, version) << "it does not flip while it loads";
    a->tell("finish");
    const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    for (const char* name : {"a", "b"}) EXPECT_EQ(entry(*report, name).state, WorkerState::kServing);
  }
  expect_newest({a.get(), b.get()});
}

TEST_P(Conformance, AnEngineMayLoadForLongerThanAFlip) {
  listen(cat(within("flip_timeout", silence()), "&", within("timeout", patience())));
  const auto a = start("a");
  a->tell("join");
  wait_for_workers(1);
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  take_next(*a, 1);
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(2 * silence()));
  a->tell("finish");
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(entry(*report, "a").state, WorkerState::kServing) << entry(*report, "a").error;
  EXPECT_GE(entry(*report, "a").seconds, absl::ToDoubleSeconds(2 * silence()));
}

TEST_P(Conformance, AnEngineThatLoadsForTooLongIsEvictedAndComesBack) {
  listen(cat(within("load_timeout", silence()), "&", within("flip_timeout", silence()), "&",
             within("timeout", patience())));
  const auto a = start("a");
  a->tell("join");
  wait_for_workers(1);
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  take_next(*a, 1);
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(entry(*report, "a").error,
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("its engine has not loaded it within")));
  a->tell("finish");
  a->tell("run");
  wait_for_workers(1);
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Conformance, ALoadThatFailsPoisonsAndTheVersionComesAgain) {
  listen();
  const auto a = start("a"), b = join("b");
  a->tell("join");
  wait_for_workers(2);
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  take_next(*a, 1);
  a->tell("fail");
  const absl::StatusOr<SendReport> report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(message_of(entry(*report, "a").error),
              AllOf(HasSubstr("poisoned"), HasSubstr("load version 1: no room to load it")));
  EXPECT_EQ(entry(*report, "b").state, WorkerState::kServing);
  take_next(*a, 1);  // again
  a->tell("finish");
  expect_newest({a.get(), b.get()});
  a->tell("run");
  wait_for_workers(2);  // over memmap it may have found the version by itself, and still catch up
  send_complete(2);
  expect_newest({a.get(), b.get()});
}

TEST_P(Conformance, AnEngineThatLoadsOutlivesItsSender) {
  listen();
  const auto a = start("a");
  a->tell("join");
  wait_for_workers(1);
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  take_next(*a, 1);
  sender_.reset();
  listen();
  a->tell("finish");
  a->tell("run");
  wait_for_workers(1);
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Conformance, AVersionIsAwaitedByItsNumber) {
  listen();
  const auto a = start("a");
  a->tell("join");
  wait_for_workers(1);
  EXPECT_THAT(a->wait_ready(absl::Milliseconds(20), 1), HasSubstr("no version (1 or newer)"));
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  EXPECT_EQ(a->wait_ready(patience(), 1), "");
  a->step();
  ASSERT_THAT(sender_->wait_async(patience()), IsOk());
  EXPECT_EQ(a->wait_ready(), "") << "it serves a version";
  EXPECT_THAT(a->wait_ready(absl::Milliseconds(20), 2), HasSubstr("the newest is 1"));
  ASSERT_THAT(begin_send(*sender_, model_, ++generation_), IsOk());
  EXPECT_EQ(a->wait_ready(patience(), 2), "");
  a->step();
  ASSERT_THAT(sender_->wait_async(patience()), IsOk());
}

}  // namespace
}  // namespace bascule::test
