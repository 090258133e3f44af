// A sender whose I/O thread stood still, as in a long message or on an overloaded machine: workers' timely messages
// wait in their sockets, and are read before any worker is judged.
#include "sender/wired.h"  // first: see there

#include <atomic>
#include <mutex>
#include <thread>

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Two stalls: during the first, the heartbeat timer comes due together with the message that causes the second, and is
// queued after it.
TEST(StoodStill, ASenderReadsWhatIsQueuedBeforeItEvicts) {
  const test::TempFolder folder;
  std::mutex mutex;
  std::vector<std::string> log;
  std::atomic<bool> stalls = false;
  const auto stall = [&stalls](std::string_view line) {
    if (!stalls) return;
    if (line == "from w0: ack") std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (line == "from w1: ack") std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  };
  auto sender = Sender::listen({.endpoint = cat("shm://", folder.path().string(), "?heartbeat=20ms&suspect_after=2s"),
                                .log =
                                    [&](std::string_view line) {
                                      const std::lock_guard lock(mutex);
                                      log.emplace_back(line);
                                    },
                                .trace = stall});
  ASSERT_THAT(sender, IsOk());
  test::TestModel model(test::ModelSize::kTiny);
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  std::vector<std::unique_ptr<WireWorker>> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(std::make_unique<WireWorker>(folder.path()));
    workers.back()->serve(cat("w", i), 1 + static_cast<std::uint64_t>(i));
  }
  ASSERT_THAT(sender->wait_for_workers(3, test::patience()), IsOk());
  const auto beat_for = [&](absl::Duration duration) {
    for (const Deadline until(duration); !until.passed(); std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      for (const auto& worker : workers) worker->say(Heartbeat{});
  };
  beat_for(absl::Milliseconds(100));
  stalls = true;
  workers[0]->say(Ack{.version = 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  workers[1]->say(Ack{.version = 1});
  beat_for(absl::Seconds(4));
  const std::lock_guard lock(mutex);
  EXPECT_THAT(log, Not(Contains(HasSubstr("fell silent"))));
}

}  // namespace
}  // namespace bascule
