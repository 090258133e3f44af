// The delivery thread: runs the scheme's deliver(), one version at a time, so that the I/O thread never waits
// for bytes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "transport/deadline.h"
#include "transport/scheme.h"

namespace bascule {

class Delivery {
 public:
  struct Job {
    Publication publication;
    std::vector<WorkerId> workers;
    Deadline deadline{Clock::time_point{}};
    std::function<void(absl::Status)> done;  // called from the delivery thread
  };

  explicit Delivery(SenderTransport& transport);
  ~Delivery();  // finishes the job under way, drops the rest

  void submit(Job job);

 private:
  void work();

  SenderTransport& transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bascule
