#include <bascule/receiver/slot_reader.h>

#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

kernels::ThreadPool& SlotReader::pool() {
  if (!pool_ && !caught([this] { pool_.emplace(threads_); }).ok()) pool_.emplace(1);  // starts no thread
  return *pool_;
}

absl::StatusOr<DeviceQueue*> SlotReader::on(int device) {
  std::unique_ptr<DeviceQueue>& queue = queues_[device];
  if (!queue) {
    BASCULE_ASSIGN(queue, open_device(device));
  }
  return queue.get();
}

absl::StatusOr<Digest> SlotReader::digest(const SlotView& view, Deadline deadline) {
  if (view.device == kHost) return kernels::digest(view.bytes, pool());
  BASCULE_ASSIGN(DeviceQueue* const queue, on(view.device));
  BASCULE_TRY(queue->digest(view.bytes, true, std::nullopt));
  BASCULE_ASSIGN(const std::optional<Digest> digest, queue->finish(deadline));
  return *digest;
}

absl::StatusOr<std::span<const kernels::TileTotal>> SlotReader::totals(const SlotView& view,
                                                                       const std::shared_ptr<const CheckedTiles>& tiles,
                                                                       Deadline deadline) {
  BASCULE_ASSIGN(DeviceQueue* const queue, on(view.device));
  BASCULE_ASSIGN(DeviceTable* const table, tables_[view.device].on(*queue, tiles, deadline));
  BASCULE_TRY(queue->digest(view.bytes, {false, table}, std::nullopt));
  BASCULE_TRY(queue->finish(deadline).status());
  return table->totals();
}

absl::Status SlotReader::settle(Deadline deadline) {
  for (const auto& [device, queue] : queues_)
    if (queue) BASCULE_TRY(queue->settle(deadline));
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
