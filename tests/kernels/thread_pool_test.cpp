#include <bascule/kernels/thread_pool.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include <bascule/kernels/control_group.h>

namespace bascule::inline v0::kernels {
namespace {

class ThreadPoolOf : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolOf, RunsEachTaskOnceAndShowsWhatItWrote) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::size_t tasks : {0U, 1U, 2U, 3U, 7U, 1000U}) {
    std::vector<int> calls(tasks);  // plain ints: run() must order them before its return
    pool.run(tasks, [&](std::size_t task) { ++calls[task]; });
    EXPECT_EQ(calls, std::vector<int>(tasks, 1)) << tasks << " tasks";
  }
}

TEST_P(ThreadPoolOf, ManyShortLoopsInARow) {
  ThreadPool pool(GetParam());
  std::array<std::size_t, 5> sums{};
  constexpr std::size_t kLoops = 5000;
  for (std::size_t loop = 0; loop < kLoops; ++loop)
    pool.run(sums.size(), [&](std::size_t task) { sums[task] += loop; });
  for (const std::size_t sum : sums) EXPECT_EQ(sum, kLoops * (kLoops - 1) / 2);
}

TEST_P(ThreadPoolOf, EachThreadStartsTasksInRisingOrder) {
  ThreadPool pool(GetParam());
  std::atomic<std::size_t> started{0};
  std::vector<std::size_t> order(2000);
  std::vector<std::thread::id> thread(order.size());
  pool.run(order.size(), [&](std::size_t task) {
    const std::size_t place = started.fetch_add(1);
    order[place] = task;
    thread[place] = std::this_thread::get_id();
  });
  std::vector<std::thread::id> threads = thread;
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  EXPECT_LE(threads.size(), static_cast<std::size_t>(pool.threads()));
  for (const std::thread::id id : threads) {
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < order.size(); ++i)
      if (thread[i] == id) own.push_back(order[i]);
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
  }
}

TEST_P(ThreadPoolOf, AllThreadsWorkAtOnce) {
  ThreadPool pool(GetParam());
  std::atomic<int> inside{0};
  // Each task waits for all others, so it ends only if every thread takes part.
  pool.run(static_cast<std::size_t>(pool.threads()), [&](std::size_t) {
    ++inside;
    while (inside.load() < pool.threads()) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), pool.threads());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST(ThreadPool, UsesAtMostSoManyThreads) {
  ThreadPool pool(8);
  for (const int most : {3, 8, 1, 5, 0, 100}) {
    pool.use_at_most(most);
    EXPECT_EQ(pool.threads(), std::clamp(most, 1, 8));
    std::atomic<int> inside{0}, at_once{0};
    for (int i = 0; i < 50; ++i)
      pool.run(200, [&](std::size_t) {
        const int now = ++inside;
        for (int seen = at_once; now > seen && !at_once.compare_exchange_weak(seen, now);) continue;
        std::this_thread::yield();
        --inside;
      });
    EXPECT_LE(at_once.load(), pool.threads());
    // So many also take part.
    pool.run(static_cast<std::size_t>(pool.threads()), [&](std::size_t) {
      ++inside;
      while (inside.load() < pool.threads()) std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, ZeroMeansOnePerUsableCore) { EXPECT_EQ(ThreadPool(0).threads(), usable_cores()); }

TEST(ThreadPool, TheCallerTakesPart) {
  ThreadPool pool(1);
  std::thread::id id;
  pool.run(1, [&](std::size_t) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

}  // namespace
}  // namespace bascule::inline v0::kernels
