// A few threads over which kernels split their loops. They are started once and reused by every send; idle threads
// sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace bascule::inline v0::kernels {

class ThreadPool {
 public:
  // `threads` includes the caller of run(), which also works: 1 starts no thread. 0 means usable_cores(). Throws
  // std::thread's exception if a thread cannot be started, after ending those already started.
  explicit ThreadPool(int threads);
  ~ThreadPool() { end(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return most_; }
  // From the next run(), at most so many threads work, and threads() returns that number; at least 1, at most all.
  void use_at_most(int threads) { most_ = std::clamp(threads, 1, static_cast<int>(workers_.size()) + 1); }

  // Calls work(task) once for each task in [0, tasks) on all threads, starting tasks in rising order. Blocks until all
  // are done and their writes visible, but does not wait for a thread that wakes up after the last task was taken. One
  // caller at a time. `work` must not throw, and must not call run(). Allocates nothing.
  template <typename Work>
  void run(std::size_t tasks, Work&& work) {
    using Target = std::remove_reference_t<Work>;
    run_erased(
        tasks, [](const void* context, std::size_t task) { (*static_cast<Target*>(const_cast<void*>(context)))(task); },
        &work);
  }

 private:
  struct Loop {
    std::size_t tasks = 0;
    void (*call)(const void*, std::size_t) = nullptr;
    const void* context = nullptr;
  };

  void run_erased(std::size_t tasks, void (*call)(const void*, std::size_t), const void* context);
  void take_tasks(const Loop& loop);
  void wait_for_loops();
  void end();

  std::mutex mutex_;
  std::condition_variable opened_;  // a loop to join, or the end
  std::condition_variable left_;    // the last worker left the loop
  Loop loop_;
  std::uint64_t generation_ = 0;  // counts loops, so that a worker joins each at most once
  std::size_t inside_ = 0;        // workers that joined the loop and have not left it
  std::size_t open_ = 0;          // how many more may join it
  bool ending_ = false;
  std::atomic<std::size_t> next_{0};  // the first task not yet taken; ordered by mutex_ around each loop
  std::vector<std::thread> workers_;
  int most_ = 1;  // that run() uses, with its caller
};

}  // namespace bascule::inline v0::kernels
