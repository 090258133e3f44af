// A folder that was removed under a live sender.
#include "sender/wired.h"  // first: see there

#include <atomic>
#include <filesystem>
#include <thread>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class EndpointIsGone : public testing::TestWithParam<const char*> {};

TEST_P(EndpointIsGone, AndItsSenderSaysSoOnce) {
  const test::TempFolder folder;
  const std::filesystem::path gone = folder.path() / GetParam();
  std::atomic<int> said = 0;
  auto sender =
      Sender::listen({.endpoint = cat("shm://", folder.path().string(), "/e?heartbeat=10ms&suspect_after=60s"),
                      .log = [&](std::string_view line) {
                        if (line.find(" was removed while this sender runs") != line.npos) ++said;
                      }});
  ASSERT_THAT(sender, IsOk());
  test::TestModel model(test::ModelSize::kTiny);
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  test::WireWorker worker(folder.path() / "e");
  worker.say(test::WireWorker::hello("w", 1));
  EXPECT_THAT(sender->wait_for_workers(1, test::patience()), IsOk());
  EXPECT_EQ(said, 0);
  std::filesystem::remove_all(gone);
  for (const Deadline deadline(test::patience()); said == 0 && !deadline.passed();) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(said, 1);
  EXPECT_THAT(sender->wait_for_workers(2, absl::ZeroDuration()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("was removed while this sender runs")));
  ASSERT_THAT(sender->send_async(), IsOk());
  worker.expect<Welcome>();  // connected workers stay
  worker.take();
  EXPECT_THAT(sender->wait_async(test::patience()), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Each, EndpointIsGone, testing::Values("e", "e/control.sock", "e/sender.lock"));

}  // namespace
}  // namespace bascule
