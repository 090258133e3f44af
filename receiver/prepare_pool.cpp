#include <bascule/receiver/prepare_pool.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <bascule/receiver/shared_by_process.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/device.h>

namespace bascule::inline v0 {
namespace {

constexpr std::chrono::seconds kIdle{1};  // how long a surplus thread waits for work before it ends

}  // namespace

std::shared_ptr<PreparePool> PreparePool::get() { return SharedByProcess<PreparePool>::get(); }

PreparePool::PreparePool() {
  const std::lock_guard lock(mutex_);
  add_thread();
}

PreparePool::~PreparePool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (std::thread& thread : left_) thread.join();
}

void PreparePool::add_thread() {
  for (std::thread& thread : left_) thread.join();  // they need the mutex no longer
  left_.clear();
  threads_.emplace_back([this] { work(); });
}

void PreparePool::line_up(TaskQueue& queue, bool from_thread) {
  if (std::exchange(queue.in_line_, true)) return;
  queue.next_ = nullptr;
  (first_ == nullptr ? first_ : last_->next_) = &queue;
  last_ = &queue;
  ++in_line_;
  add_threads(idle_ + (from_thread ? 1 : 0));
  changed_.notify_one();
}

void PreparePool::leave_line(TaskQueue& queue) {
  TaskQueue* before = nullptr;
  for (TaskQueue* each = first_; each != &queue; each = each->next_) before = each;
  (before == nullptr ? first_ : before->next_) = queue.next_;
  if (last_ == &queue) last_ = before;
  queue.in_line_ = false;
  --in_line_;
}

// The present threads do the work if no other can be started.
void PreparePool::add_threads(std::size_t free) {
  if (in_line_ > free && threads_.size() < kMostThreads + waiting_) static_cast<void>(caught([this] { add_thread(); }));
}

void PreparePool::leave() {
  const auto own = std::ranges::find(threads_, std::this_thread::get_id(), &std::thread::get_id);
  left_.push_back(std::move(*own));
  threads_.erase(own);
}

void PreparePool::work() {
  own_thread_of_devices();
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    const auto has_work = [this] { return ending_ || first_ != nullptr; };
    threads_.size() > 1 ? void(changed_.wait_for(lock, kIdle, has_work)) : changed_.wait(lock, has_work);
    --idle_;
    if (ending_) return;
    if (first_ == nullptr) {
      if (threads_.size() > 1 && caught([this] { leave(); }).ok()) return;
      continue;
    }
    TaskQueue& queue = *first_;
    leave_line(queue);
    queue.run_first(lock);
  }
}

PreparePool::Waiting::Waiting(PreparePool& pool) : pool_(pool) {
  const std::lock_guard lock(pool_.mutex_);
  ++pool_.waiting_;
  pool_.add_threads(pool_.idle_);
}

PreparePool::Waiting::~Waiting() {
  const std::lock_guard lock(pool_.mutex_);
  --pool_.waiting_;
}

// ---- one receiver's tasks ----

void TaskQueue::stop() {
  std::unique_lock lock(pool_->mutex_);
  stopping_ = true;
  if (in_line_) pool_->leave_line(*this);
  idle_.wait(lock, [this] { return !busy_; });
}

// Only the queue may need memory here. The task is moved once it has that.
void TaskQueue::push(std::function<void()> task) {
  static_cast<void>(until_done([&] { tasks_.push_back(std::move(task)); }));
  if (!busy_ && !stopping_) pool_->line_up(*this);
}

void TaskQueue::submit(std::function<void()> task) {
  const std::lock_guard lock(pool_->mutex_);
  push(std::move(task));
}

void TaskQueue::run_or_submit(std::function<void()> task) {
  {
    const std::lock_guard lock(pool_->mutex_);
    if (busy_ || !tasks_.empty()) return push(std::move(task));
    busy_ = true;
    runs_on_ = std::this_thread::get_id();
  }
  static_cast<void>(caught(task));
  task = nullptr;
  const std::lock_guard lock(pool_->mutex_);
  end_task();
}

void TaskQueue::end_task(bool on_thread_of_pool) {
  busy_ = false;
  if (!tasks_.empty() && !stopping_) pool_->line_up(*this, on_thread_of_pool);
  idle_.notify_all();
}

void TaskQueue::run_first(std::unique_lock<std::mutex>& lock) {
  std::function<void()> task = std::move(tasks_.front());
  tasks_.pop_front();
  busy_ = true;
  runs_on_ = std::this_thread::get_id();
  lock.unlock();
  static_cast<void>(caught(task));
  task = nullptr;
  lock.lock();
  end_task(/*on_thread_of_pool=*/true);
}

bool TaskQueue::is_this_thread() const {
  const std::lock_guard lock(pool_->mutex_);
  return busy_ && runs_on_ == std::this_thread::get_id();
}

}  // namespace bascule::inline v0
