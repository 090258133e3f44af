// RegionPacking: fills a rank's own region of a slot with the boxes that it owns, on the host or on its device.
//
//   plan()  once per layout, and when strides change
//   begin() each send: enqueues the pack, or does it    finish() waits, and returns what the region adds to the total
//
// Public thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/sender/known_memory.h>
#include <bascule/sender/ranks/shard_packing.h>
#include <bascule/sender/ranks/shared_table.h>
#include <bascule/transport/device.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/slot_memory.h>

namespace bascule::inline v0 {

class RegionPacking {
 public:
  // For shards on `device`, or kHost. Returns the errors of open_device().
  static absl::StatusOr<std::unique_ptr<RegionPacking>> make(int device);

  // Plans to write the boxes with these numbers (HeldShards) into `region` of slots of `layout`, which has a division.
  // INVALID_ARGUMENT names a tensor that cannot be cast, or says that the boxes are not the region's.
  absl::Status plan(const Layout& layout, std::uint32_t region, const HeldShards& held,
                    std::span<const std::uint32_t> owned);

  // Lets this rank's device write its region's part of the slot's table, which must outlive the result. Null if the
  // shards lie in host memory.
  absl::StatusOr<std::unique_ptr<DeviceTable>> reach(SharedTable& table);

  // Writes the boxes, from where `held` has them now, into this rank's memory of a slot. On a device, the work follows
  // what is queued on the shards' stream. With `digest`, fills the region's part of `table`, which is `on_device` if a
  // device writes it. INVALID_ARGUMENT names a shard that the device cannot read.
  absl::Status begin(const HeldShards& held, SlotMemory& memory, bool digest, SharedTable& table,
                     DeviceTable* on_device, kernels::ThreadPool& pool);
  // Blocks until the region is written, and its part of the table is filled: the totals of its tiles, and of
  // the tiles with the zeros up to the next region.
  absl::Status finish(Deadline deadline);

 private:
  struct Box {
    std::uint32_t tensor = 0, shard = 0;  // indices into the tensors, and into that tensor's shards
  };
  void look_at(const HeldShards& held);  // fills views_ and addresses_
  std::span<kernels::TileTotal> own_part(SharedTable& table) const;

  std::unique_ptr<DeviceQueue> queue_;  // null: the shards lie in host memory
  std::vector<Box> boxes_;
  std::vector<std::string> names_;  // of the boxes, for texts
  std::vector<TensorView> views_;
  std::vector<const std::byte*> addresses_;
  Plan plan_;
  std::unique_ptr<DevicePlan> device_plan_;  // after the queue, so that it is destroyed first
  KnownMemory known_;
  std::uint64_t plan_number_ = 0, read_number_ = 0;
  std::uint64_t bytes_ = 0, first_page_ = 0;  // the region's, without the zeros
  std::uint64_t end_ = 0;                     // the region's length with the zeros
  std::vector<kernels::TileTotal> zeros_;  // of the pages after it, by tile, from the tile that has the first of them
  std::span<kernels::TileTotal> totals_;   // that the pass under way fills; none without a digest
};

}  // namespace bascule::inline v0
