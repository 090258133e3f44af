// A single copy and a worker that finds it wrong, seen from the wire: the test is the worker.
#include "sender/wired.h"  // first: see there

#include <future>

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

}  // namespace
}  // namespace bascule
