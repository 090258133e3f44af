// StatusBoard: holds a receiver's own status; callers wait here until a version can be served. Any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/receiver/receiver_status.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

class StatusBoard {
 public:
  struct Posted {
    ReceiverStatus status;
    bool ready = false;     // a version can be served
    Version newest = 0;     // the newest version that can be served
    bool greeted = false;   // a sender was greeted, and welcomes at its first publication
    bool hopeless = false;  // the last refusal is final
  };

  // `change` gives the same result if it is called twice: if memory runs out, it is called again.
  template <typename Change>
  void update(const Change& change) noexcept {
    static_cast<void>(until_done([&] {
      const std::lock_guard lock(mutex_);
      change(posted_);
    }));
    changed_.notify_all();
  }
  ReceiverStatus status() const;
  // Blocks until version `least` or a newer one can be served. Returns FAILED_PRECONDITION if `hopeless`. `worker` and
  // `place` are for error texts.
  absl::Status wait_ready(Version least, Deadline deadline, std::string_view worker, std::string_view place);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Posted posted_;
};

}  // namespace bascule::inline v0
