#include <bascule/receiver/flip_gate.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace bascule::inline v0 {
namespace {

constexpr absl::Duration kInterruptible = absl::Milliseconds(50);

}  // namespace

void FlipGate::set_pending() {
  pending_.store(decided_.has_value() || yielded_ || poisoned_, std::memory_order_release);
}

std::optional<LocalVersion> FlipGate::decide(LocalVersion local) {
  const std::lock_guard lock(mutex_);
  std::optional<LocalVersion> skipped = std::exchange(decided_, std::move(local));
  yielded_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
  return skipped;
}

void FlipGate::ask_to_yield(std::function<void()> yielded) {
  const std::lock_guard lock(mutex_);
  if (lost_) return;
  yielded_ = std::move(yielded);
  set_pending();
}

void FlipGate::resume() {
  const std::lock_guard lock(mutex_);
  yielded_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
}

void FlipGate::poison() {
  const std::lock_guard lock(mutex_);
  poisoned_ = true;
  yielded_ = nullptr;
  waiting_ = false;
  set_pending();
  changed_.notify_all();
}

void FlipGate::lose() {
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }
  poison();
}

bool FlipGate::poisoned() const {
  const std::lock_guard lock(mutex_);
  return poisoned_;
}

std::optional<LocalVersion> FlipGate::take() {
  std::unique_lock lock(mutex_);
  if (const std::function<void()> yielded = std::exchange(yielded_, nullptr)) {
    waiting_ = true;
    lock.unlock();
    yielded();
    lock.lock();
    changed_.wait(lock, [this] { return !waiting_; });  // bounded: the I/O thread gives up a silent sender
  }
  if (lost_) return std::nullopt;
  std::optional<LocalVersion> taken = std::exchange(decided_, std::nullopt);
  if (taken) poisoned_ = false;
  set_pending();
  return taken;
}

void FlipGate::offer(LocalVersion local) {
  const std::lock_guard lock(mutex_);
  const Version version = local.version;
  offered_.insert_or_assign(version, std::move(local));
  changed_.notify_all();
}

bool FlipGate::withdraw(Version version) {
  const std::lock_guard lock(mutex_);
  return offered_.erase(version) > 0;
}

std::optional<LocalVersion> FlipGate::take(Version version, Deadline deadline, std::vector<LocalVersion>& dropped,
                                           const std::function<bool()>& interrupted) {
  std::unique_lock lock(mutex_);
  const auto has_ended = [&] { return lost_ || offered_.contains(version); };
  bool came = false, let_go = false;
  while (!came && !let_go) {
    const auto until = interrupted ? std::min(deadline.at(), Deadline(kInterruptible).at()) : deadline.at();
    came = changed_.wait_until(lock, until, has_ended);
    if (came || deadline.passed()) break;
    lock.unlock();  // it runs the user's code
    let_go = interrupted && interrupted();
    lock.lock();
    came = has_ended();
  }
  while (!offered_.empty() && offered_.begin()->first < version)
    dropped.push_back(std::move(offered_.extract(offered_.begin()).mapped()));
  if (!came || lost_) return std::nullopt;
  poisoned_ = false;
  set_pending();
  return std::move(offered_.extract(version).mapped());
}

}  // namespace bascule::inline v0
