// SlotReader: reads slots for the transport, wherever they lie: on the host with threads, on a device with a separate
// queue there. Prepare thread, or any one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/part_check.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class SlotReader {
 public:
  explicit SlotReader(int threads) : threads_(threads) {}  // started at first use, if they can be

  // Returns the digest of all bytes of the view. Blocks; returns DEADLINE_EXCEEDED if a device was too slow.
  absl::StatusOr<Digest> digest(const SlotView& view, Deadline deadline);

  // Returns the totals of these tiles of a view on a device, as PartCheck::check() takes them, until the next call.
  // Blocks; returns DEADLINE_EXCEEDED if the device was too slow.
  absl::StatusOr<std::span<const kernels::TileTotal>> totals(const SlotView& view,
                                                             const std::shared_ptr<const CheckedTiles>& tiles,
                                                             Deadline deadline);

  // Blocks until no device still reads for this reader, even for calls that ran out of time. Returns DEADLINE_EXCEEDED
  // if a device still reads.
  absl::Status settle(Deadline deadline);

  kernels::ThreadPool& pool();
  absl::StatusOr<DeviceQueue*> on(int device);  // opened at first use

 private:
  const int threads_;
  std::optional<kernels::ThreadPool> pool_;
  std::map<int, CheckedTable> tables_;  // by device; destroyed after the queues
  std::map<int, std::unique_ptr<DeviceQueue>> queues_;
};

}  // namespace bascule::inline v0
