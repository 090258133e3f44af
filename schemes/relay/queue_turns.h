// QueueTurns: the right to use a queue, for one thread at a time.
#pragma once

#include <condition_variable>
#include <mutex>

#include <bascule/transport/deadline.h>

namespace bascule::inline v0::relay {

class QueueTurns {
 public:
  // Waits for the right, and has it until it is destroyed; false: not before the deadline.
  class Turn {
   public:
    Turn(QueueTurns& turns, Deadline deadline) : turns_(turns) {
      std::unique_lock lock(turns_.mutex_);
      is_mine_ = turns_.ended_.wait_until(lock, deadline.at(), [this] { return !turns_.taken_; });
      if (is_mine_) turns_.taken_ = true;
    }
    ~Turn() {
      if (!is_mine_) return;
      const std::lock_guard lock(turns_.mutex_);
      turns_.taken_ = false;
      turns_.ended_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return is_mine_; }

   private:
    QueueTurns& turns_;
    bool is_mine_ = false;
  };

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool taken_ = false;
};

}  // namespace bascule::inline v0::relay
