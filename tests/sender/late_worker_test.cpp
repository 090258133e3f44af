// Workers that answer late or never, seen from the wire: the test is the workers. A send settles all the same.
#include "sender/wire_worker.h"  // first: see there

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "sender/sender.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;

class LateWorker : public testing::Test {
 protected:
  void SetUp() override {
    auto made = Sender::listen(
        {.endpoint = "shm://" + folder_.path().string() + "?suspect_after=60s&timeout=300ms&flip_timeout=300ms"});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(std::make_unique<HostTensors>(
                    std::vector<std::pair<TensorSpec, const void*>>{{{"w", DType::kF32, {4}}, weight_.data()}})),
                IsOk());
    ASSERT_THAT(sender_->send(), IsOk());
    quick_ = std::make_unique<WireWorker>(folder_.path());
    slow_ = std::make_unique<WireWorker>(folder_.path());
    quick_->serve("quick", 1);
    slow_->serve("slow", 2);
    ASSERT_THAT(sender_->wait_for_workers(2, test::patience()), IsOk());
  }

  const test::TempFolder folder_;
  const std::array<float, 4> weight_{1, 2, 3, 4};
  std::optional<Sender> sender_;
  std::unique_ptr<WireWorker> quick_, slow_;
};

// The slow one has no room until the send's time is over. What the quick one had to do began only then.
TEST_F(LateWorker, OthersHaveTimeToPrepareOnceTheyAreTold) {
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Version version = quick_->expect<Prepare>().version;
  quick_->say(Ready{.version = version});
  quick_->expect<Sealed>();  // the slow one was given up
  quick_->say(Prepared{.version = version});
  quick_->expect<Commit>();
  quick_->say(Ack{.version = version});
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(std::ranges::count(report->workers, WorkerState::kServing, &WorkerReport::state), 1);
}

// And where it never prepares, nobody waits for it for ever.
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
