// A few threads that share one loop: kernels split their work over it. Started once, reused by every send.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace bascule::kernels {

class ThreadPool {
 public:
  // `threads` counts the caller of run(), which works too: 1 starts no thread. 0 means one per core.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls work(task) once for each task in [0, tasks), in rising order of start, on all threads, and returns when all
  // are done. One caller at a time. `work` must not throw. Allocates nothing.
  template <typename Work>
  void run(std::size_t tasks, Work&& work) {
    run_erased(tasks, [](void* context, std::size_t task) { (*static_cast<std::remove_reference_t<Work>*>(context))(task); },
               &work);
  }

 private:
  void run_erased(std::size_t tasks, void (*call)(void*, std::size_t), void* context);
};

}  // namespace bascule::kernels
