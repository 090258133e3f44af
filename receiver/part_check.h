// PartCheck: how a worker that copies only parts of a slot verifies them. The digest covers the whole slot, so instead
// this worker compares tiles with the sender's digest table: each tile of which it copies all bytes. Tiles of which it
// copies some bytes are not checked. docs/design/regions.md explains the table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/ranges.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// The tiles of which a plan copies all bytes. Made once for a layout.
struct WholeTiles {
  static std::shared_ptr<const WholeTiles> make(const Plan& plan, const Layout& layout);

  std::vector<ByteRange> ranges;       // of the slot
  std::vector<std::uint8_t> is_whole;  // for each tile of the slot: 1 or 0
};

// "bytes [65536, 131072), where tensor w lies,": the first tensor that has bytes in the range.
std::string place_of(const Layout& layout, const ByteRange& range);

struct PartCheck {
  std::shared_ptr<const WholeTiles> tiles;
  DigestTable table;  // proven against the version's digest

  // Returns OK if these tiles of `view`, which is host memory, have the totals of the table. DATA_LOSS names slot,
  // version, the first wrong bytes and their tensor. Blocks.
  absl::Status check(const Publication& publication, const Layout& layout, const SlotView& view,
                     kernels::ThreadPool& pool) const;
  // The same for totals from kernels::unpack, which was given `tiles->is_whole`.
  absl::Status check(const Publication& publication, const Layout& layout, const DigestTable& found) const;
};

}  // namespace bascule::inline v0
