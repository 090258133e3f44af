#include <bascule/trainer_ref/engine/http/work_pool.h>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kMostSmallBytes = std::size_t{64} << 10;  // milliseconds of encoding

}  // namespace

struct WorkPool::Task {
  Job job;
  std::stop_source stop;
};

WorkPool::Ticket::~Ticket() {
  if (task_ != nullptr) task_->stop.request_stop();
}

WorkPool::WorkPool(std::size_t most_waiting) : most_waiting_(most_waiting) {
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_.at(i) = std::jthread([this, i] { run(i); });
}

WorkPool::~WorkPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const std::shared_ptr<Task>& task : running_)
      if (task != nullptr) task->stop.request_stop();
  }
  changed_.notify_all();
  for (std::jthread& thread : threads_) thread.join();
}

absl::StatusOr<WorkPool::Ticket> WorkPool::start(std::size_t bytes, Job job) {
  auto task = std::make_shared<Task>(Task{std::move(job), {}});
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = bytes <= kMostSmallBytes ? small_ : large_;
    if (queue.size() >= most_waiting_) std::erase_if(queue, [](const auto& each) { return each.expired(); });
    if (queue.size() >= most_waiting_)
      return absl::ResourceExhaustedError(cat(most_waiting_, " requests wait to be read; try again later"));
    queue.push_back(task);
  }
  changed_.notify_all();
  return Ticket(std::move(task));
}

std::shared_ptr<WorkPool::Task> WorkPool::next(std::size_t thread) {
  for (Queue* queue : {&large_, &small_}) {
    if (queue == &large_ && thread == 0) continue;
    while (!queue->empty()) {
      std::shared_ptr<Task> task = queue->front().lock();
      queue->pop_front();
      if (task != nullptr) return task;
    }
  }
  return nullptr;
}

void WorkPool::run(std::size_t thread) {
  std::shared_ptr<Task>& task = running_.at(thread);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    task = next(thread);
    if (task == nullptr) {
      changed_.wait(lock);
      continue;
    }
    const std::shared_ptr<Task> running = task;
    lock.unlock();
    if (!running->stop.stop_requested()) running->job(running->stop.get_token());
    running->job = nullptr;  // what it holds goes before the lock is taken
    lock.lock();
  }
  task = nullptr;
}

}  // namespace bascule::ref
