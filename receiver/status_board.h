// StatusBoard: what a receiver says of itself, and where callers wait until a version can be served. Any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/receiver/receiver_status.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

class StatusBoard {
 public:
  struct Posted {
    ReceiverStatus status;
    bool ready = false;     // a version can be served
    Version newest = 0;     // of those
    bool greeted = false;   // a sender, which has not answered: it welcomes at its first publication
    bool hopeless = false;  // the last refusal will not change by itself
  };

  void update(const std::function<void(Posted&)>& change);
  ReceiverStatus status() const;
  // Blocks until a version from `least` on can be served. FAILED_PRECONDITION: hopeless. `worker`, `place`: for texts.
  absl::Status wait_ready(Version least, Deadline deadline, std::string_view worker, std::string_view place);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Posted posted_;
};

}  // namespace bascule::inline v0
