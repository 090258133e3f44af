#include <bascule/receiver/flip_gate.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include <bascule/transport/caught.h>

namespace bascule::inline v0 {
namespace {

constexpr absl::Duration kInterruptible = absl::Milliseconds(50);

}  // namespace

void FlipGate::set_pending() {
  const bool pending = !loading_ && (decided_.has_value() || yielded_ || poisoned_);
  if (!pending) pending_.store(false, std::memory_order_release);
  bell_.set(pending || !begun_);  // while pending() returns true, the descriptor is readable
  if (!pending || pending_.exchange(true, std::memory_order_acq_rel)) return;
  bell_.set(true);  // an edge for a loop that the first one woke before pending() returned true
}

absl::StatusOr<int> FlipGate::descriptor() {
  const std::lock_guard lock(mutex_);
  set_pending();
  return bell_.descriptor();
}

void FlipGate::begin() {
  const std::lock_guard lock(mutex_);
  begun_ = true;
  set_pending();
}

void FlipGate::set_loading(bool loading) {
  const std::lock_guard lock(mutex_);
  loading_ = loading;
  set_pending();
}

std::optional<LocalVersion> FlipGate::decide(LocalVersion local) {
  const std::lock_guard lock(mutex_);
  std::optional<LocalVersion> skipped = std::exchange(decided_, std::move(local));
  yielded_ = nullptr;
  let_go();
  return skipped;
}

void FlipGate::ask_to_yield(SlotId slot, std::function<void()> yielded) {
  const std::lock_guard lock(mutex_);
  if (lost_) return;
  yielded_ = std::move(yielded);
  asked_for_ = slot;
  set_pending();
}

void FlipGate::let_go() {
  waiting_ = false;
  set_pending();
  changed_.notify_all();
}

void FlipGate::resume() {
  const std::lock_guard lock(mutex_);
  yielded_ = nullptr;
  let_go();
}

std::optional<LocalVersion> FlipGate::spoil() {
  const std::lock_guard lock(mutex_);
  std::optional<LocalVersion> spoiled;
  if (decided_ && decided_->lease == asked_for_) spoiled = std::exchange(decided_, std::nullopt);
  poisoned_ = true;
  yielded_ = nullptr;
  let_go();
  return spoiled;
}

// A yield that is requested and not done stays requested: the sender still waits for it.
void FlipGate::poison() {
  const std::lock_guard lock(mutex_);
  poisoned_ = true;
  let_go();
}

void FlipGate::lose() {
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    yielded_ = nullptr;
  }
  poison();
}

bool FlipGate::poisoned() const {
  const std::lock_guard lock(mutex_);
  return poisoned_;
}

std::optional<LocalVersion> FlipGate::take(Deadline deadline, bool& late) {
  late = false;
  std::unique_lock lock(mutex_);
  if (const std::function<void()> yielded = std::exchange(yielded_, nullptr)) {
    waiting_ = true;
    lock.unlock();
    yielded();
    lock.lock();
    late = !changed_.wait_until(lock, deadline.at(), [this] { return !waiting_; });
    waiting_ = false;
    if (late) return std::nullopt;
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
  static_cast<void>(until_done([&] { dropped.reserve(dropped.size() + offered_.size()); }));  // none may be lost
  while (!offered_.empty() && offered_.begin()->first < version)
    dropped.push_back(std::move(offered_.extract(offered_.begin()).mapped()));
  if (!came || lost_) return std::nullopt;
  poisoned_ = false;
  set_pending();
  return std::move(offered_.extract(version).mapped());
}

}  // namespace bascule::inline v0
