// The exact contents of a send's report.
#include "sender/wired.h"  // first: see there

#include "support/schemes/fake_scheme.h"

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using WiredReport = test::Wired;

TEST_F(WiredReport, HasTheWarningsOfAnUpdateWithIt) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  ASSERT_THAT(sender_->update_weights(), IsOk());  // of the same bytes
  model_.step(2);
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->updates.size(), 1);
  EXPECT_THAT(report->updates[0].warnings, ElementsAre(HasSubstr("same bytes as version 1")));
  EXPECT_THAT(report->warnings, IsEmpty());
}

TEST_F(WiredReport, DoesNotTakeAVersionThatWasAbortedForTheOneBefore) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  const auto worker = connect();
  worker->serve("w", 1);
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  model_.step(2);
  ASSERT_THAT(sender_->send_async(), IsOk());
  const Prepare prepare = worker->expect<Prepare>();
  worker->say(Ready{.version = 2});
  worker->expect<Sealed>();
  worker->say(Failed{.version = 2, .why = "this once"});
  worker->expect<Abort>();
  worker->release(prepare);
  EXPECT_FALSE(sender_->wait_async(test::patience()).ok());
  ASSERT_THAT(sender_->send_async(), IsOk());
  worker->take();
  const absl::StatusOr<SendReport> report = sender_->wait_async(test::patience());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->warnings, IsEmpty());
}

// It needs a slot that was made later, which cannot be offered to it.
TEST(FakeReport, NamesAWorkerThatCouldNotBeOfferedASlot) {
  const test::TempFolder folder;
  test::FakeFaults faults;
  const Scheme scheme = test::fake_scheme(faults);
  test::TestModel model{test::ModelSize::kTiny};
  model.step(1);
  absl::StatusOr<Sender> sender =
      Sender::listen({.endpoint = cat("fake://", folder.path().string(), "?suspect_after=60s"), .scheme = &scheme});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  test::WireWorker gone(folder.path()), worker(folder.path());
  gone.serve("gone", 2);
  gone.hang_up();  // and still reads
  const Prepare first = worker.serve("w", 1);
  ASSERT_THAT(sender->wait_for_workers(1, test::patience()), IsOk());
  model.step(2);
  ASSERT_THAT(sender->send_async(), IsOk());
  worker.take();
  worker.release(first);
  ASSERT_THAT(sender->wait_async(test::patience()), IsOk());
  faults.set("admit", 1);
  const absl::StatusOr<SendReport> report = sender->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->complete());
  ASSERT_EQ(report->workers.size(), 1);
  EXPECT_EQ(report->workers[0].state, WorkerState::kEvicted);
}

// Numbers must not run out because a worker claims the last one.
TEST_F(WiredReport, CountsOnWhateverAStrangerSaysThatHeServes) {
  listen();
  ASSERT_THAT(sender_->send(), IsOk());
  const auto stranger = connect();
  Hello hello = test::WireWorker::hello("stranger", 6);
  hello.serving = ~Version{0};
  stranger->say(hello);
  EXPECT_THAT(stranger->expect<Refused>().why,
              testing::AllOf(HasSubstr("worker stranger"), HasSubstr("above the last one, 1;")));
  const absl::StatusOr<SendReport> report = sender_->send();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->version, 2);
}

}  // namespace
}  // namespace bascule
