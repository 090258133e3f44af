// SlotReader: reads slots for the transport's own sake, wherever they lie: on the host by threads, on a device by a
// queue of its own there. Prepare thread, or any one thread.
#pragma once

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "kernels/thread_pool.h"
#include "transport/deadline.h"
#include "transport/device.h"
#include "transport/scheme.h"

namespace bascule {

class SlotReader {
 public:
  explicit SlotReader(int threads) : pool_(threads) {}

  // Of all that the view holds. Blocks until it is made; DEADLINE_EXCEEDED: a device has not made it by then.
  absl::StatusOr<Digest> digest(const SlotView& view, Deadline deadline);

  kernels::ThreadPool& pool() { return pool_; }
  absl::StatusOr<DeviceQueue*> on(int device);  // opened when it is first asked for

 private:
  kernels::ThreadPool pool_;
  std::map<int, std::unique_ptr<DeviceQueue>> queues_;
};

}  // namespace bascule
