#include "receiver/session_world_engine.h"

#include <poll.h>

#include <utility>

#include "support/timing.h"
#include <bascule/transport/status.h>

namespace bascule::test {

WorldEngine::WorldEngine(Receiver receiver, bool in_place, int descriptor)
    : receiver_(std::move(receiver)), in_place_(in_place), descriptor_(descriptor) {
  thread_ = std::thread([this] { run(); });
}

WorldEngine::~WorldEngine() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void WorldEngine::begin(Call call, Version version) {
  const std::lock_guard lock(mutex_);
  call_ = call;
  wanted_ = version;
  changed_.notify_all();
}

bool WorldEngine::idle() {
  const std::lock_guard lock(mutex_);
  return !call_;
}

bool WorldEngine::idle_by(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [this] { return !call_; });
}

std::string WorldEngine::wrong() {
  const std::lock_guard lock(mutex_);
  return wrong_;
}

Version WorldEngine::version() {
  const std::lock_guard lock(mutex_);
  return flip_.poisoned ? 0 : flip_.version;
}

bool WorldEngine::loading() {
  const std::lock_guard lock(mutex_);
  return loading_;
}

std::optional<SlotId> WorldEngine::reads() {
  const std::lock_guard lock(mutex_);
  if (call_ || !in_place_ || flip_.poisoned || flip_.version == 0) return std::nullopt;
  return flip_.slot;
}

void WorldEngine::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return call_ || ends_; });
    if (!call_) return;
    const Call call = *call_;
    const Version version = wanted_;
    lock.unlock();
    make(call, version);
    lock.lock();
    call_.reset();
    changed_.notify_all();
  }
}

void WorldEngine::make(Call call, Version version) {
  Flip flip = flip_;
  bool loading = loading_;
  switch (call) {
    case Call::kCommit: flip = receiver_.commit(version); break;
    case Call::kTake:
      flip = receiver_.take(version);
      loading |= flip.changed;
      break;
    case Call::kFinish:
      receiver_.finish();
      loading = false;
      break;
    case Call::kFinishWithError:
      receiver_.finish(absl::InternalError("a test"));
      if (loading) flip = {};  // it serves nothing
      loading = false;
      break;
  }
  {
    const std::lock_guard lock(mutex_);
    if (flip.version != 0 && flip.version < flip_.version) wrong_ = "the engine was taken back to an older version";
    flip_ = flip;
    loading_ = loading;
  }
  look();
}

void WorldEngine::look() {
  if (!flip_.poisoned && flip_.version != 0) {
    const TensorView* const tensor = receiver_.weights(flip_.slot).find("w");
    if (tensor == nullptr) return says("the served version has no weights");
    const auto* const floats = reinterpret_cast<const float*>(tensor->data);
    for (int i = 0; i < 4; ++i)
      if (floats[i] != static_cast<float>(flip_.version))
        says(cat("version ", flip_.version, " reads as ", floats[0], " ", floats[1], " ", floats[2], " ", floats[3]));
  }
  if (descriptor_ < 0) return;
  for (const Deadline deadline(patience()); receiver_.pending() && !is_readable();)
    if (deadline.passed()) return says("pending() is true, and the descriptor is not readable");
}

void WorldEngine::says(std::string what) {
  const std::lock_guard lock(mutex_);
  if (wrong_.empty()) wrong_ = std::move(what);
}

bool WorldEngine::is_readable() const {
  pollfd readable{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, 1) > 0;
}

}  // namespace bascule::test
