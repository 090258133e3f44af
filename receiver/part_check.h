// PartCheck: how a worker that copies only parts of a slot verifies them. The digest covers the whole slot, so instead
// this worker compares tiles with the sender's digest table: each tile of which it copies all bytes. Tiles of which it
// copies some bytes are checked only with digest=always, since the rest of such a tile must then be read as well.
// docs/design/regions.md explains the table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/ranges.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

struct CheckedTiles {
  std::vector<ByteRange> ranges;         // of the slot
  std::vector<std::uint8_t> is_checked;  // for each tile of the slot: 1 or 0
  BytesRead bytes;                       // of one pass that copies, and checks these tiles
};

// The tiles that a worker with this plan can check. Made once for a layout. Null if the plan reads more than
// kMostRanges ranges, which leave hardly a tile whole.
struct PlanTiles {
  static std::shared_ptr<const PlanTiles> make(const Plan& plan, const Layout& layout);

  CheckedTiles whole;    // of which the plan copies all bytes
  CheckedTiles touched;  // of which the plan copies any byte
};

// "bytes [65536, 131072), where tensor w lies,": the first tensor that has bytes in the range.
std::string place_of(const Layout& layout, const ByteRange& range);

struct PartCheck {
  std::shared_ptr<const CheckedTiles> tiles;
  DigestTable table;  // proven against the version's digest

  // Returns OK if these tiles of `view`, which is host memory, have the totals of the table. DATA_LOSS names slot,
  // version, the first wrong bytes and their tensor. Blocks.
  absl::Status check(const Publication& publication, const Layout& layout, const SlotView& view,
                     kernels::ThreadPool& pool) const;
  // The same for totals that a pass found, which was given `tiles->is_checked`: kernels::unpack or a device's work.
  absl::Status check(const Publication& publication, const Layout& layout,
                     std::span<const kernels::TileTotal> found) const;
};

// A device's table for the tiles that a worker checks, made once for each set of tiles. Destroy it after the queue.
class CheckedTable {
 public:
  absl::StatusOr<DeviceTable*> on(DeviceQueue& queue, const std::shared_ptr<const CheckedTiles>& tiles,
                                  Deadline deadline);

 private:
  std::shared_ptr<const CheckedTiles> tiles_;
  std::unique_ptr<DeviceTable> table_;
};

}  // namespace bascule::inline v0
