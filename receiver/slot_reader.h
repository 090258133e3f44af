// SlotReader: reads slots for the transport's own sake, wherever they lie: on the host by threads, on a device by a
// queue of its own there. Prepare thread, or any one thread.
#pragma once

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class SlotReader {
 public:
  explicit SlotReader(int threads) : pool_(threads) {}

  // Of all that the view holds. Blocks until it is made; DEADLINE_EXCEEDED: a device has not made it by then.
  absl::StatusOr<Digest> digest(const SlotView& view, Deadline deadline);

  // Blocks until no device reads for it any more, also where time was up before. DEADLINE_EXCEEDED: one does.
  absl::Status settle(Deadline deadline);

  kernels::ThreadPool& pool() { return pool_; }
  absl::StatusOr<DeviceQueue*> on(int device);  // opened when it is first asked for

 private:
  kernels::ThreadPool pool_;
  std::map<int, std::unique_ptr<DeviceQueue>> queues_;
};

}  // namespace bascule::inline v0
