// A single copy and a worker that finds it wrong, seen from the wire: the test is the worker.
#include "sender/wired.h"  // first: see there

#include <array>
#include <future>
#include <thread>

#include "receiver/receiver.h"

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;

class WiredSingleCopy : public test::Wired {
 protected:
  absl::Status publish() {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    return slot.ok() ? sender_->publish(*std::move(slot)).status() : slot.status();
  }
};

TEST_F(WiredSingleCopy, ThatFailsOnceItIsWrittenIsTorn) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  const auto worker = connect();
  worker->serve("a", 1);
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  const Version version = worker->expect<Prepare>().version;
  worker->say(Ready{.version = version});
  worker->expect<Sealed>();
  worker->say(Failed{.version = version, .why = "its bytes are wrong"});
  EXPECT_TRUE(worker->expect<Abort>().torn) << "what was served before is gone";
  EXPECT_FALSE(published.get().ok());
}

// Who leaves once the slot is granted, and has not let go of it yet, is waited for as those are who are there.
TEST_F(WiredSingleCopy, WaitsForAReaderThatLeftWithIt) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->serve("a", 1);
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  worker->expect<Prepare>();
  worker->say(Poisoned{.why = "its device is lost"});
  EXPECT_EQ(published.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout) << published.get();
  worker.reset();  // and its lease pipe
  EXPECT_THAT(published.get(), IsOk());
}

TEST_F(WiredSingleCopy, IsAskedOfAReaderThatCameBackBeforeItIsWritten) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->say(WireWorker::hello("a", 1));
  worker->expect<Welcome>();
  const Prepare served = worker->take();
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  worker->expect<Prepare>();
  worker->say(Poisoned{.why = "its device is lost"});
  const auto back = connect();  // the first one's lease pipe is still there
  Hello hello = WireWorker::hello("a", 1);
  hello.held = {{.slot = served.slot, .version = served.version}};
  back->say(hello);
  back->expect<Welcome>();
  back->take();
  EXPECT_THAT(published.get(), IsOk());
}

// Its group is on its way out with it, and is asked for no more.
TEST_F(WiredSingleCopy, IsLentThoughARankThatSteppedAsideDies) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  const auto reader = connect();
  auto first = connect(), second = connect();
  reader->serve("reader", 3);
  const auto both = {first.get(), second.get()};
  for (std::uint32_t rank = 0; WireWorker* const worker : both) {
    Hello hello = WireWorker::hello(cat("tp-", rank), 10 + rank);
    hello.group = "tp";
    hello.rank = rank++;
    hello.ranks = 2;
    hello.casts = true;  // it copies
    worker->say(hello);
  }
  for (WireWorker* worker : both) worker->expect<Welcome>();
  const Prepare served = WireWorker::take_all(both);
  for (WireWorker* worker : both) worker->say(Released{.slot = served.slot, .version = served.version});
  ASSERT_THAT(sender_->wait_for_workers(3, test::patience()), IsOk());
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  const Version version = reader->expect<Prepare>().version;
  for (WireWorker* worker : both) worker->expect<Prepare>();
  reader->say(Ready{.version = version});
  first->say(Ready{.version = version});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  first->hang_up();
  second->expect<Refused>();
  first.reset();
  second.reset();
  reader->expect<Sealed>();
  reader->say(Prepared{.version = version});
  reader->expect<Commit>();
  reader->say(Ack{.version = version});
  EXPECT_THAT(published.get(), IsOk());
}

TEST_F(WiredSingleCopy, IsServedToWhoJoinsAfterALoanThatCameToNothing) {
  const auto limit = absl::ToInt64Milliseconds(test::silence());
  listen(cat("slots=1&timeout=", limit, "ms&flip_timeout=", limit, "ms"));
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->serve("a", 1);
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  EXPECT_THAT(sender_->loan(),
              test::StatusIs(absl::StatusCode::kDeadlineExceeded, testing::HasSubstr("a")));  // it does not step aside
  worker.reset();
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = cat("shm://", folder_.path().string()), .worker = "b"});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->wait_ready(test::patience()), IsOk());
}

TEST_F(WiredSingleCopy, IsNotLentWhereTheParametersDidNotMove) {
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?slots=1")});
  ASSERT_THAT(sender, IsOk());
  const std::array<float, 4> weights{};
  std::vector<std::pair<TensorSpec, const void*>> tensors = {{TensorSpec{"w", DType::kF32, {4}}, weights.data()}};
  EXPECT_FALSE(sender->register_model(std::make_unique<HostTensors>(std::move(tensors))).ok());
  EXPECT_THAT(sender->loan(),
              test::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("did not move")));
}

}  // namespace
}  // namespace bascule
