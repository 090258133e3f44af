// Ranks of a group that come, go and answer late, seen from the wire; the test is the ranks.
#include "sender/wired.h"  // first: see there

#include <algorithm>
#include <thread>

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;
using testing::HasSubstr;

class LostRank : public test::Wired {
 protected:
  static Hello hello(std::uint32_t rank) {
    Hello hello = WireWorker::hello(cat("tp-", rank), 10 + rank);
    hello.group = "tp";
    hello.rank = rank;
    hello.ranks = 2;
    return hello;
  }
};

// The remaining ranks of a group are not told to flip: they would serve a version that the lost one does not.
TEST_F(LostRank, TakesItsGroupOutOfTheVersion) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  const auto first = connect(), second = connect();
  first->say(hello(0));
  second->say(hello(1));
  for (const auto& rank : {first.get(), second.get()}) {
    rank->expect<Welcome>();
    rank->say(Ready{.version = rank->expect<Prepare>().version});
  }
  for (const auto& rank : {first.get(), second.get()}) {
    rank->expect<Sealed>();
    rank->say(Prepared{.version = 1});
  }
  for (const auto& rank : {first.get(), second.get()}) {
    rank->expect<Decided>();
    rank->say(Ack{.version = 1});
  }
  ASSERT_THAT(sender_->wait_for_workers(2, test::patience()), IsOk());

  ASSERT_THAT(sender_->send_async(), IsOk());
  for (const auto& rank : {first.get(), second.get()}) rank->say(Ready{.version = rank->expect<Prepare>().version});
  first->expect<Sealed>();
  first->say(Prepared{.version = 2});
  first->expect<Refused>();  // the other one never reports that it is prepared
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kEvicted, &WorkerReport::state), 2);
}

TEST_F(LostRank, ThatComesBackKeepsItsGroupOutUntilItHasCaughtUp) {
  listen();
  const absl::StatusOr<SendReport> sent = sender_->send();
  ASSERT_THAT(sent, IsOk());
  const auto first = connect(), second = connect();
  Hello serving = hello(0);
  serving.epoch = sent->epoch;
  serving.serving = 1;
  first->say(serving);
  second->say(hello(1));
  first->expect<Welcome>();
  second->expect<Welcome>();
  second->expect<Prepare>();  // and answers nothing
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kCatchingUp, &WorkerReport::state), 2);
  first->expect<Refused>();  // without a message about the new version
}

TEST_F(LostRank, OfASingleCopyIsRefusedWhereItReadsInPlace) {
  listen("slots=1");
  const auto rank = connect();
  rank->say(hello(0));
  const Refused refused = rank->expect<Refused>();
  EXPECT_TRUE(refused.final);
  EXPECT_THAT(refused.why, HasSubstr("slots=2"));
}

// With commit=each others flip; the group flips to the version together, later.
TEST_F(LostRank, ThatCannotPrepareKeepsItsGroupFromFlippingOneByOne) {
  listen("commit=each");
  ASSERT_THAT(sender_->send(), IsOk());
  const auto first = connect(), second = connect(), other = connect();
  const auto both = {first.get(), second.get()};
  first->say(hello(0));
  second->say(hello(1));
  for (WireWorker* rank : both) rank->expect<Welcome>();
  WireWorker::take_all(both);
  other->serve("other", 3);
  ASSERT_THAT(sender_->wait_for_workers(3, test::patience()), IsOk());

  ASSERT_THAT(sender_->send_async(), IsOk());
  Prepare prepare;
  for (WireWorker* worker : {first.get(), second.get(), other.get()}) {
    prepare = worker->expect<Prepare>();
    worker->say(Ready{.version = 2});
  }
  for (WireWorker* worker : {first.get(), second.get(), other.get()}) worker->expect<Sealed>();
  first->say(Prepared{.version = 2});
  second->say(Failed{.version = 2, .why = "this once"});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  other->say(Prepared{.version = 2});
  other->expect<Decided>();
  other->say(Ack{.version = 2});
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kFailed, &WorkerReport::state), 2);
  for (WireWorker* rank : both) {
    rank->expect<Abort>();
    rank->release(prepare);
  }
  EXPECT_EQ(WireWorker::take_all(both).version, 2);
}

}  // namespace
}  // namespace bascule
