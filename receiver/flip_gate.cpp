#include "receiver/flip_gate.h"

#include <utility>

namespace bascule {

void FlipGate::set_pending() {
  pending_.store(decided_.has_value() || stepped_aside_ || poisoned_, std::memory_order_release);
}

std::optional<Target> FlipGate::decide(Target target) {
  const std::lock_guard lock(mutex_);
  std::optional<Target> skipped = std::exchange(decided_, std::move(target));
  stepped_aside_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
  return skipped;
}

void FlipGate::ask_to_step_aside(std::function<void()> stepped_aside) {
  const std::lock_guard lock(mutex_);
  stepped_aside_ = std::move(stepped_aside);
  set_pending();
}

void FlipGate::resume() {
  const std::lock_guard lock(mutex_);
  stepped_aside_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
}

void FlipGate::poison() {
  const std::lock_guard lock(mutex_);
  poisoned_ = true;
  stepped_aside_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
}

bool FlipGate::poisoned() const {
  const std::lock_guard lock(mutex_);
  return poisoned_;
}

std::optional<Target> FlipGate::take() {
  std::unique_lock lock(mutex_);
  if (const std::function<void()> stepped_aside = std::exchange(stepped_aside_, nullptr)) {
    waiting_ = true;
    lock.unlock();
    stepped_aside();
    lock.lock();
    changed_.wait(lock, [this] { return !waiting_; });  // bounded: the I/O thread gives up a silent sender
  }
  std::optional<Target> taken = std::exchange(decided_, std::nullopt);
  if (taken) poisoned_ = false;
  set_pending();
  return taken;
}

void FlipGate::offer(Target target) {
  const std::lock_guard lock(mutex_);
  const Version version = target.version;
  offered_.insert_or_assign(version, std::move(target));
  changed_.notify_all();
}

bool FlipGate::withdraw(Version version) {
  const std::lock_guard lock(mutex_);
  return offered_.erase(version) > 0;
}

std::optional<Target> FlipGate::take(Version version, Deadline deadline, std::vector<Target>& dropped) {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_until(lock, deadline.at(), [&] { return offered_.contains(version); });
  while (!offered_.empty() && offered_.begin()->first < version)
    dropped.push_back(std::move(offered_.extract(offered_.begin()).mapped()));
  if (!came) return std::nullopt;
  poisoned_ = false;
  set_pending();
  return std::move(offered_.extract(version).mapped());
}

}  // namespace bascule
