// Workers that answer late or never, seen from the wire; the test is the workers. A send still settles.
#include "sender/wired.h"  // first: see there

#include <algorithm>

namespace bascule {
namespace {

using test::IsOk;

class LateWorker : public test::Wired {
 protected:
  void SetUp() override {
    listen();
    ASSERT_THAT(sender_->send(), IsOk());
    quick_ = connect();
    slow_ = connect();
    quick_->serve("quick", 1);
    slow_->serve("slow", 2);
    ASSERT_THAT(sender_->wait_for_workers(2, test::patience()), IsOk());
  }

  std::unique_ptr<test::WireWorker> quick_, slow_;
};

// The slow one has no room until the send's time is over. The quick one's work began only then.
TEST_F(LateWorker, OthersHaveTimeToPrepareOnceTheyAreTold) {
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Version version = quick_->expect<Prepare>().version;
  quick_->say(Ready{.version = version});
  EXPECT_TRUE(quick_->expect<Sealed>().decided) << "the slow one was given up, so this one is alone";
  quick_->say(Prepared{.version = version});
  quick_->say(Ack{.version = version});
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kServing, &WorkerReport::state), 1);
}

// If it never prepares, no one waits for it forever.
TEST_F(LateWorker, ASendSettlesThoughWhoWasToldLateNeverAnswers) {
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Version version = quick_->expect<Prepare>().version;
  quick_->say(Ready{.version = version});
  quick_->expect<Sealed>();
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kEvicted, &WorkerReport::state), 2);
}

}  // namespace
}  // namespace bascule
