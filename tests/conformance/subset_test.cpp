// Sends to some of the workers, and the slots that the other workers continue to read.
#include "conformance/suite.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

TEST_P(Conformance, ASendToSomeLeavesTheOthersWhereTheyAre) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const std::uint64_t first = generation_;
  model_.step(++generation_);
  const absl::StatusOr<SendReport> report = sender_->send(nullptr, {"a", "a"});
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->workers.size(), 1u);
  EXPECT_EQ(entry(*report, "a").state, WorkerState::kServing);
  expect_newest({a.get()});
  // b is not brought up to date: it was left out on purpose.
  const Observed left = b->wait_until([](const Observed& now) { return now.checks > 20; }, "more checks");
  EXPECT_EQ(left.version, 1u);
  EXPECT_EQ(left.generation, first);
  EXPECT_EQ(left.wrong, "");
  send_complete(2);
  expect_newest({a.get(), b.get()});
}

TEST_P(Conformance, AnUnknownNameIsRefusedWithTheKnownOnes) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const auto unknown = StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("'c'"), HasSubstr("known are: a, b")));
  EXPECT_THAT(sender_->send(nullptr, {"a", "c"}), unknown);
  EXPECT_THAT(sender_->send_async(nullptr, {"c"}), unknown);
  EXPECT_THAT(sender_->loan({"c"}), unknown);
  EXPECT_EQ(send_complete(2).version, 2u) << "a refused send takes no number";
  expect_newest({a.get(), b.get()});
}

// b continues to read its version. With two slots, the next send needs a third one, which comes and goes.
TEST_P(Conformance, AReaderThatIsLeftOutKeepsItsSlotAndTheSenderMakesAnother) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  const std::uint64_t first = generation_;
  for (int i = 0; i < 6; ++i) {
    model_.step(++generation_);
    const absl::StatusOr<SendReport> report = sender_->send(nullptr, {"a"});
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get()});
  }
  EXPECT_EQ(b->report().generation, first);
  EXPECT_EQ(b->report().wrong, "");
  for (int i = 0; i < 4; ++i) send_complete(2);
  expect_newest({a.get(), b.get()});
}

// a, b and c come to read three slots, of which one is retired: there is no fourth until a worker lets go.
TEST_P(Conformance, SendsToEachInTurnRetireOneSlotAndNoMore) {
  listen(cat("spares=1&suspect_after=", absl::ToInt64Milliseconds(patience()), "ms&flip_timeout=",
             absl::ToInt64Milliseconds(patience()), "ms&timeout=", absl::ToInt64Milliseconds(silence()), "ms"));
  const auto a = join("a"), b = join("b"), c = join("c");
  wait_for_workers(3);
  send_complete(3);
  const auto send_to = [&](const char* name) { return sender_->send(nullptr, {name}); };
  model_.step(++generation_);
  ASSERT_THAT(send_to("a"), IsOk());
  expect_newest({a.get()});
  model_.step(++generation_);
  ASSERT_THAT(send_to("b"), IsOk());
  expect_newest({b.get()});
  model_.step(generation_ + 1);
  EXPECT_THAT(send_to("b"), StatusIs(StatusCode::kDeadlineExceeded,
                                     AllOf(HasSubstr("still read by"), HasSubstr("a (slot "), HasSubstr("c (slot "))));
  for (Worker* worker : {a.get(), b.get(), c.get()}) EXPECT_EQ(worker->report().wrong, "");
  EXPECT_EQ(c->report().version, 1u);
  EXPECT_EQ(a->report().version, 2u);
  EXPECT_EQ(b->report().version, 3u);
}

TEST_P(Conformance, MoreSlotsThanTwo) {
  listen("slots=4");
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  for (int i = 0; i < 12; ++i) {
    send_complete(2);
    if (i % 4 != 3) continue;
    model_.step(++generation_);
    ASSERT_THAT(sender_->send(nullptr, {"a"}), IsOk());
  }
  send_complete(2);
  expect_newest({a.get(), b.get()});
}

TEST_P(Conformance, ALateJoinerComesToASlotThatWasMadeLater) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  send_complete(2);
  for (int i = 0; i < 3; ++i) {
    model_.step(++generation_);
    ASSERT_THAT(sender_->send(nullptr, {"a"}), IsOk());
  }
  const auto late = join("late");
  expect_newest({a.get(), late.get()});
  wait_for_workers(3);  // the sender also knows that it has caught up
  send_complete(3);
  expect_newest({a.get(), b.get(), late.get()});
}

}  // namespace
}  // namespace bascule::test
