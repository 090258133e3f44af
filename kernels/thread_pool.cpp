#include <bascule/kernels/thread_pool.h>

#include <algorithm>

#include <bascule/kernels/control_group.h>

namespace bascule::inline v0::kernels {

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cores();
  const auto workers = static_cast<std::size_t>(std::max(threads, 1) - 1);
  workers_.reserve(workers);
  try {
    for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back([this] { wait_for_loops(); });
    use_at_most(threads);
  } catch (...) {
    end();
    throw;
  }
}

void ThreadPool::end() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  opened_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(std::size_t tasks, void (*call)(const void*, std::size_t), const void* context) {
  const Loop loop{tasks, call, context};
  next_.store(0, std::memory_order_relaxed);  // no thread is inside: the last run() waited for them
  const std::size_t helpers = std::min(static_cast<std::size_t>(most_ - 1), tasks == 0 ? 0 : tasks - 1);
  if (helpers > 0) {
    {
      std::lock_guard lock(mutex_);
      loop_ = loop;
      ++generation_;
      open_ = helpers;
    }
    if (helpers == workers_.size()) {
      opened_.notify_all();
    } else {
      for (std::size_t i = 0; i < helpers; ++i) opened_.notify_one();
    }
  }
  take_tasks(loop);
  if (helpers > 0) {
    std::unique_lock lock(mutex_);
    open_ = 0;
    left_.wait(lock, [this] { return inside_ == 0; });
  }
}

void ThreadPool::take_tasks(const Loop& loop) {
  for (;;) {
    const std::size_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= loop.tasks) return;
    loop.call(loop.context, task);
  }
}

void ThreadPool::wait_for_loops() {
  std::uint64_t joined = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    opened_.wait(lock, [&] { return ending_ || (open_ > 0 && generation_ != joined); });
    if (ending_) return;
    joined = generation_;
    --open_;
    ++inside_;
    const Loop loop = loop_;
    lock.unlock();
    take_tasks(loop);
    lock.lock();
    if (--inside_ == 0) left_.notify_one();
  }
}

}  // namespace bascule::inline v0::kernels
