// A single copy and a worker that finds it wrong, seen from the wire: the test is the worker.
#include "sender/wired.h"  // first: see there

#include <future>

namespace bascule {
namespace {

using test::IsOk;
using test::Wired;

TEST_F(Wired, ASingleCopyThatFailsOnceItIsWrittenIsTorn) {
  listen("slots=1");
  const auto publish = [this] {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    return slot.ok() ? sender_->publish(*std::move(slot)).status() : slot.status();
  };
  ASSERT_THAT(publish(), IsOk());
  const auto worker = connect();
  worker->serve("a", 1);
  std::future<absl::Status> published = std::async(std::launch::async, publish);
  const Version version = worker->expect<Prepare>().version;
  worker->say(Ready{.version = version});
  worker->expect<Sealed>();
  worker->say(Failed{.version = version, .why = "its bytes are wrong"});
  EXPECT_TRUE(worker->expect<Abort>().torn) << "what was served before is gone";
  EXPECT_FALSE(published.get().ok());
}

}  // namespace
}  // namespace bascule
