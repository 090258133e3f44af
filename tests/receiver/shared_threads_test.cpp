// All receivers of a process share an I/O thread and a few threads that prepare versions.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/prepare_pool.h>
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

bool flips(Receiver& receiver) {
  for (const Deadline deadline(patience()); !deadline.passed();
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (receiver.commit().changed) return true;
  return false;
}

class SharedThreads : public testing::Test {
 protected:
  std::string endpoint(std::size_t i) const { return cat("shm://", (folder_.path() / cat(i)).string()); }
  Sender sender(std::size_t i) {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint(i), .threads = 1, .expect_workers = {0}});
    EXPECT_THAT(sender, IsOk());
    EXPECT_THAT(sender->register_model(host_tensors({{{"a", DType::kF32, {4}}, values_.data()}})), IsOk());
    EXPECT_THAT(sender->send(), IsOk());
    return *std::move(sender);
  }
  Receiver receiver(std::size_t i, std::function<void()> on_pending = {}) {
    absl::StatusOr<Receiver> receiver =
        Receiver::connect({.endpoint = endpoint(i), .worker = "w", .on_pending = std::move(on_pending)});
    EXPECT_THAT(receiver, IsOk());
    receiver->join();
    return *std::move(receiver);
  }

  const TempFolder folder_;
  std::array<float, 4> values_{1, 2, 3, 4};
};

TEST_F(SharedThreads, SixtyFourReceiversCostEightAtMost) {
  constexpr std::size_t kCount = 64;
  std::vector<Sender> senders;
  for (std::size_t i = 0; i < kCount; ++i) senders.push_back(sender(i));
  const std::ptrdiff_t before = threads_of_this_process();
  {
    std::vector<Receiver> receivers;
    for (std::size_t i = 0; i < kCount; ++i) receivers.push_back(receiver(i));
    for (Receiver& each : receivers) ASSERT_TRUE(flips(each)) << "to what was sent before it came";
    for (int version = 2; version <= 4; ++version) {
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_THAT(senders[i].wait_for_workers(1, patience()), IsOk());
        ASSERT_THAT(senders[i].send_async(), IsOk());
      }
      for (Receiver& each : receivers) ASSERT_TRUE(flips(each));
      for (Sender& each : senders) ASSERT_TRUE(each.wait_async()->complete());
    }
    EXPECT_LE(threads_of_this_process(), before + 8);
  }
  EXPECT_EQ(threads_of_this_process(), before) << "the last receiver ends them";
}

// The I/O thread runs the callback, and would wait for itself.
TEST_F(SharedThreads, AReceiverMayBeDestroyedInTheCallbackOfAnother) {
  Sender first = sender(0), second = sender(1);
  std::optional<Receiver> other = receiver(1);
  ASSERT_TRUE(flips(*other));
  std::atomic<bool> called = false;
  Receiver receiver = this->receiver(0, [&] {
    if (!called.exchange(true)) other.reset();
  });
  EXPECT_TRUE(flips(receiver));
  EXPECT_TRUE(called);
  ASSERT_THAT(first.wait_for_workers(1, patience()), IsOk());
  ASSERT_THAT(first.send_async(), IsOk());
  EXPECT_TRUE(flips(receiver));
  EXPECT_TRUE(first.wait_async()->complete());
}

TEST_F(SharedThreads, AForkedChildHasItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer starts no threads in a child of a process that has several";
#endif
  Sender first = sender(0);
  Receiver parents = receiver(0);
  ASSERT_TRUE(flips(parents));
  Sender second = sender(1);
  const pid_t child = ::fork();
  if (child == 0) {
    absl::StatusOr<Receiver> own = Receiver::connect({.endpoint = endpoint(1), .worker = "child"});
    ::_exit(own.ok() && own->wait_ready(patience()).ok() && own->commit().changed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_THAT(first.send_async(), IsOk());
  EXPECT_TRUE(flips(parents)) << "the parent's go on";
  EXPECT_TRUE(first.wait_async()->complete());
}

TEST(PreparePool, RunsEachQueuesTasksInOrderAndOneAtATime) {
  const std::shared_ptr<PreparePool> pool = PreparePool::get();
  constexpr int kQueues = 20, kTasks = 500;
  std::vector<std::vector<int>> ran(kQueues);  // a data race unless they run one at a time
  std::atomic<int> left = kQueues * kTasks;
  std::vector<std::unique_ptr<TaskQueue>> queues;
  for (int q = 0; q < kQueues; ++q) queues.push_back(std::make_unique<TaskQueue>(pool));
  for (int i = 0; i < kTasks; ++i)
    for (int q = 0; q < kQueues; ++q) {
      const auto task = [&, q, i] {
        ran[static_cast<std::size_t>(q)].push_back(i);
        --left;
      };
      TaskQueue& queue = *queues[static_cast<std::size_t>(q)];
      i % 7 == 0 ? queue.run_or_submit(task) : queue.submit(task);
    }
  for (const Deadline deadline(patience()); left > 0 && !deadline.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  queues.clear();
  std::vector<int> all(kTasks);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_THAT(ran, testing::Each(all));
}

// Engines of one process may wait for each other, so each must get its version though others wait.
TEST(PreparePool, TasksThatWaitForEnginesHoldUpNoOther) {
  const std::shared_ptr<PreparePool> pool = PreparePool::get();
  std::atomic<bool> free = false;
  std::vector<std::unique_ptr<TaskQueue>> waiting;
  for (std::size_t i = 0; i < 2 * PreparePool::kMostThreads; ++i) {
    waiting.push_back(std::make_unique<TaskQueue>(pool));
    waiting.back()->submit([&] {
      const PreparePool::Waiting mark(*pool);
      for (const Deadline deadline(patience()); !free && !deadline.passed();)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(free);
    });
  }
  TaskQueue other(pool);
  other.submit([&] { free = true; });
  for (const Deadline deadline(patience()); !free && !deadline.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(free);
}

TEST(PreparePool, AStoppedQueueRunsNothingMore) {
  const std::shared_ptr<PreparePool> pool = PreparePool::get();
  std::atomic<int> ran = 0;
  for (int i = 0; i < 200; ++i) {
    TaskQueue queue(pool), next(pool);
    for (int task = 0; task < 10; ++task) queue.submit([&] { ++ran; });
    next.submit([] {});
    queue.stop();
    const int by_then = ran;
    queue.submit([&] { ++ran; });
    std::this_thread::yield();
    ASSERT_EQ(ran, by_then);
  }
}

}  // namespace
}  // namespace bascule::test
