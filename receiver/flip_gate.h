// FlipGate: where the I/O thread leaves a decided version and the engine's thread takes it at a token
// boundary.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "receiver/attachment.h"
#include "transport/deadline.h"
#include "transport/version.h"

namespace bascule {

// A version that may be served.
struct Target {
  std::shared_ptr<Attachment> attachment;  // keeps it mapped
  Version version = 0;
  SlotId slot;
  const Weights* weights = nullptr;
  Clock::time_point decided_at;
};

class FlipGate {
 public:
  // I/O thread: the sender told us to commit. Returns the version decided before it that no commit() took, if
  // any.
  std::optional<Target> decide(Target target) {
    const std::lock_guard lock(mutex_);
    std::optional<Target> skipped = std::exchange(decided_, std::move(target));
    pending_.store(true, std::memory_order_release);  // pairs with the acquire in pending()
    return skipped;
  }

  // Engine's thread, at every token boundary: one load.
  bool pending() const { return pending_.load(std::memory_order_acquire); }

  // Engine's thread, when pending() said so.
  std::optional<Target> take() {
    const std::lock_guard lock(mutex_);
    pending_.store(false, std::memory_order_relaxed);  // under the mutex: no decide() is lost
    return std::exchange(decided_, std::nullopt);
  }

 private:
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  std::optional<Target> decided_;
};

}  // namespace bascule
