#include "sender/delivery.h"

#include <utility>

namespace bascule {

Delivery::Delivery(SenderTransport& transport) : transport_(transport), thread_([this] { work(); }) {}

Delivery::~Delivery() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Delivery::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Delivery::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.done(transport_.deliver(job.publication, job.workers, job.deadline));
    lock.lock();
  }
}

}  // namespace bascule
