// A scheme whose publish() takes as long as a disk may: meanwhile the sender still handles its workers' messages, and
// nothing aborts the version.
#include "sender/wired.h"  // first: see there

#include "support/schemes/fake_scheme.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::patience;
using test::StatusIs;
using testing::HasSubstr;

class SlowPublish : public testing::Test {
 protected:
  ~SlowPublish() override { faults_.set("publish-hang", 0); }  // or the sender would not end

  void listen(std::string_view options = "timeout=60s&flip_timeout=60s") {
    auto made = Sender::listen(
        {.endpoint = cat("fake://", folder_.path().string(), "?suspect_after=60s&", options), .scheme = &scheme_});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    model_.step(1);
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
    ASSERT_THAT(sender_->send(), IsOk());
    for (auto* worker : {&a_, &b_}) worker->emplace(folder_.path());
    a_->serve("a", 1);
    b_->serve("b", 2);
    ASSERT_THAT(sender_->wait_for_workers(2, patience()), IsOk());
    model_.step(2);
  }
  // A send that hangs in its publish().
  void send_and_hang() {
    faults_.set("publish-hang", 1);
    ASSERT_THAT(sender_->send_async(), IsOk());
    const Version version = a_->expect<Prepare>().version;
    EXPECT_EQ(b_->expect<Prepare>().version, version);
    for (auto* worker : {&a_, &b_}) (*worker)->say(Ready{.version = version});
    for (auto* worker : {&a_, &b_}) (*worker)->expect<Sealed>();
    for (auto* worker : {&a_, &b_}) (*worker)->say(Prepared{.version = version});
    ASSERT_TRUE(faults_.wait_for("publish-hang", 1, Deadline(patience())));
  }
  // The sender's I/O thread answers a new connection.
  void expect_alive() {
    test::WireWorker stranger(folder_.path());
    stranger.say(test::WireWorker::hello("a", 3));
    EXPECT_THAT(stranger.expect<Refused>().why, HasSubstr("another worker named a"));
  }

  const test::TempFolder folder_;
  test::TestModel model_{test::ModelSize::kTiny};
  test::FakeFaults faults_;
  const Scheme scheme_ = test::fake_scheme(faults_);
  std::optional<Sender> sender_;
  std::optional<test::WireWorker> a_, b_;
};

TEST_F(SlowPublish, AWorkerThatDiesMeanwhileIsFoundAndTheOthersFlip) {
  listen();
  send_and_hang();
  expect_alive();
  a_->hang_up();
  for (const Deadline deadline(patience()); !deadline.passed();)
    if (!sender_->wait_for_workers(2, absl::ZeroDuration()).ok()) break;
  EXPECT_THAT(sender_->wait_for_workers(2, absl::ZeroDuration()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("found 1")));
  faults_.set("publish-hang", 0);
  EXPECT_EQ(b_->expect<Decided>().version, 2u);
  b_->say(Ack{.version = 2});
  const auto report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->workers.size(), 2u);
  EXPECT_EQ(report->workers[0].state, WorkerState::kEvicted);
  EXPECT_EQ(report->workers[1].state, WorkerState::kServing);
}

// It cannot be withdrawn: the scheme may have told other processes.
TEST_F(SlowPublish, AVersionThatAllFailMeanwhileIsNotAborted) {
  listen("commit=each&timeout=60s&flip_timeout=60s");
  send_and_hang();
  for (auto* worker : {&a_, &b_}) (*worker)->hang_up();
  for (const Deadline deadline(patience()); !deadline.passed();)
    if (!sender_->wait_for_workers(1, absl::ZeroDuration()).ok()) break;
  faults_.set("publish-hang", 0);
  const auto report = sender_->wait_async(patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(sender_->version(), 2u);
}

TEST_F(SlowPublish, AnErrorAbortsTheVersionForAll) {
  listen();
  send_and_hang();
  faults_.set("publish", 1);
  faults_.set("publish-hang", 0);
  for (auto* worker : {&a_, &b_}) EXPECT_EQ((*worker)->expect<Abort>().version, 2u);
  EXPECT_THAT(sender_->wait_async(patience()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("publish version 2: fake: publish was told to fail")));
  EXPECT_EQ(sender_->version(), 1u);
}

}  // namespace
}  // namespace bascule
