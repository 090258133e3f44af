// A sender and three workers over real sockets, while memory runs out on the threads of either end: at most one
// worker's session ends, and it comes back; each send ends, and the others serve the new version.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "no_memory/failing_allocator.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

// The next message with this line in a trace makes the n-th allocation after it fail, on the thread that traces it.
struct Arm {
  std::mutex mutex;
  std::string line;  // empty: none
  std::size_t n = 0;
};

class EndsWithoutMemory : public testing::Test {
 protected:
  explicit EndsWithoutMemory(const char* scheme = "shm") : scheme_(scheme) {
    spare_thread();
    auto made = Sender::listen(
        {.endpoint = endpoint(), .threads = 1, .expect_workers = {.count = 3}, .trace = [this](std::string_view line) {
           trace(line);
         }});
    EXPECT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    model_.step(1);
    EXPECT_THAT(sender_->register_model(model_.source()), IsOk());
    for (std::size_t i = 0; i < workers_.size(); ++i) connect(i);
    engine_ = std::thread([this] { run_engines(); });
    EXPECT_THAT(sender_->wait_for_workers(3, patience()), IsOk());
  }
  ~EndsWithoutMemory() override {
    stop_failing_anywhere();
    stopping_ = true;
    engine_.join();
  }

  std::string endpoint() const {
    return cat(scheme_, "://", folder_.path().string(), "?suspect_after=20s&flip_timeout=20s");
  }
  void connect(std::size_t i) {
    const std::string name(1, static_cast<char>('a' + i));
    auto made = Receiver::connect(
        {.endpoint = endpoint(), .worker = name, .threads = 1, .trace = [this, name](std::string_view line) {
           trace(cat(name, " ", line));
         }});
    ASSERT_THAT(made, IsOk());
    std::optional<Receiver> before;
    {
      const std::lock_guard lock(engines_);
      before = std::exchange(workers_[i], *std::move(made));
    }
  }

  // On the thread that handles the message.
  void trace(std::string_view line) {
    const std::lock_guard lock(arm_.mutex);
    if (arm_.line != line) return;
    arm_.line.clear();
    fail_at(arm_.n);
  }
  void arm(std::string line, std::size_t n) {
    const std::lock_guard lock(arm_.mutex);
    arm_.line = std::move(line);
    arm_.n = n;
  }

  void run_engines() {
    spare_thread();
    while (!stopping_) {
      {
        const std::lock_guard lock(engines_);
        for (std::optional<Receiver>& worker : workers_)
          if (worker) worker->commit();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // A send that at most one worker misses, besides one that the failure before cost after its report; in the end all
  // serve its version.
  void send() {
    model_.step(++generation_);
    absl::StatusOr<SendReport> report = sender_->send();
    // Without memory for the manifest the version is aborted, and the next send brings it.
    if (scheme_ == "memmap" && absl::IsResourceExhausted(report.status())) report = sender_->send();
    ASSERT_THAT(report, IsOk());
    std::set<std::string> lost;
    for (const WorkerReport& worker : report->workers)
      if (worker.state != WorkerState::kServing && worker.state != WorkerState::kCatchingUp) lost.insert(worker.worker);
    EXPECT_LE(lost.size(), 2U) << report->why_incomplete();
    EXPECT_GE(report->workers.size(), 3U);  // one that came back meanwhile is there twice
    const auto all_serve = [&] {
      const std::lock_guard lock(engines_);
      return std::ranges::all_of(workers_, [&](const auto& worker) {
        const ReceiverStatus status = worker->status();
        return status.attached && status.state == ReceiverState::kServing && status.version == report->version;
      });
    };
    bool served = all_serve();  // later its session may still end
    for (const Deadline deadline(patience()); !served && !deadline.passed(); served = all_serve())
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    ASSERT_TRUE(served);
    ASSERT_THAT(sender_->wait_for_workers(3, patience()), IsOk());
  }
  // Until a whole send passes without a failure. The first allocations are those that handle the message, which may be
  // one that follows the report.
  void fail_at_each(std::string_view line) {
    constexpr int kTries = 50;
    std::size_t n = 1;
    for (int tries = 0; tries < kTries;) {
      SCOPED_TRACE(cat(line, ", allocation ", n));
      const std::size_t before = failures();
      arm(std::string(line), n);
      send();
      const bool failed = failures() > before;
      if (HasFatalFailure() || (!failed && n > 1)) break;
      failed ? n += n < 50 / kSlowdown ? 1 : 7 * kSlowdown : ++tries;
    }
    EXPECT_GT(n, 1U);
  }

  const std::string scheme_;
  const TempFolder folder_;
  TestModel model_{ModelSize::kTiny};
  std::uint64_t generation_ = 1;
  Arm arm_;
  std::optional<Sender> sender_;
  std::mutex engines_;
  std::array<std::optional<Receiver>, 3> workers_;
  std::atomic<bool> stopping_ = false;
  std::thread engine_;
};

class AtEachMessage : public EndsWithoutMemory, public testing::WithParamInterface<const char*> {};
TEST_P(AtEachMessage, OneSessionEnds) {
  send();
  fail_at_each(GetParam());
}
INSTANTIATE_TEST_SUITE_P(OfTheSender, AtEachMessage,
                         testing::Values("from b: ready", "from b: prepared", "from b: ack", "from b: released",
                                         "to a: prepare", "to a: sealed", "to a: decided"));
INSTANTIATE_TEST_SUITE_P(OfTheWorker, AtEachMessage,
                         testing::Values("b from sender: prepare", "b from sender: sealed", "b from sender: decided",
                                         "b to sender: ready", "b to sender: prepared", "b to sender: ack",
                                         "b to sender: released"));

// Another worker of the same name is refused, and comes again, even if it has no memory to handle the refusal. Both use
// one I/O thread: if the failure ends the session of the first, the second may take its name.
TEST_F(EndsWithoutMemory, ARefusedWorkerGreetsAgain) {
  send();  // from now on a worker that is let in is welcomed at once
  std::atomic<int> greetings = 0;
  std::size_t n = 1;
  for (std::size_t before = 0; failures() > before || n == 1; ++n) {
    SCOPED_TRACE(cat("allocation ", n));
    before = failures();
    arm("twin from sender: refused", n);
    greetings = 0;
    auto twin =
        Receiver::connect({.endpoint = endpoint(), .worker = "a", .threads = 1, .trace = [&](std::string_view line) {
                             trace(cat("twin ", line));
                             if (line == "to sender: hello") ++greetings;
                           }});
    ASSERT_THAT(twin, IsOk());
    twin->join();
    const auto came_again = [&] { return greetings >= 3 || twin->status().attached; };
    const Deadline deadline(patience());
    while (!came_again() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(came_again()) << greetings << " greetings; " << twin->status().error;
    arm("", 0);
  }
  EXPECT_GT(n, 5U);
}

class OverScheme : public EndsWithoutMemory, public testing::WithParamInterface<const char*> {
 protected:
  OverScheme() : EndsWithoutMemory(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(EndsWithoutMemory, OverScheme, testing::Values("shm", "memmap"));

// A worker joins and takes a version, while any allocation of any thread fails: greeting, welcome, mapping, catch-up.
TEST_P(OverScheme, AWorkerJoinsAndServesAnyway) {
  constexpr std::size_t kStride = 3 * kSlowdown * kSlowdown;
  send();
  std::size_t n = 1;
  for (;; n += kStride) {
    SCOPED_TRACE(cat("allocation ", n));
    fail_anywhere_at(n);
    connect(2);
    ASSERT_THAT(sender_->wait_for_workers(3, patience()), IsOk());
    send();
    if (!stop_failing_anywhere() || HasFatalFailure()) break;
  }
  EXPECT_GT(n, 100U);
}

}  // namespace
}  // namespace bascule::test
