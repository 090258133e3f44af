#include <bascule/transport/task_thread.h>

#include <utility>

#include <bascule/transport/caught.h>

namespace bascule::inline v0 {

TaskThread::TaskThread() : thread_([this] { work(); }) {}

void TaskThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    push(std::move(task));
  }
  changed_.notify_one();
}

// Only the queue may need memory here. The task is moved once it has that.
void TaskThread::push(std::function<void()> task) {
  static_cast<void>(until_done([&] { tasks_.push_back(std::move(task)); }));
}

void TaskThread::run_or_submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (working_ || busy_ || !tasks_.empty()) {
      push(std::move(task));
      return changed_.notify_one();
    }
    busy_ = true;
  }
  static_cast<void>(caught(task));
  task = nullptr;
  const std::lock_guard lock(mutex_);
  busy_ = false;
  if (!tasks_.empty()) changed_.notify_one();
}

void TaskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || (!tasks_.empty() && !busy_); });
    if (stopping_) return;
    working_ = true;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    static_cast<void>(caught(task));
    task = nullptr;
    lock.lock();
    working_ = false;
  }
}

}  // namespace bascule::inline v0
