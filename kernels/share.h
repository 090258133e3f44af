// SharePlan: one writer's part of a slot that others write at the same time. Each box takes one segment, even if it is
// cut by columns and therefore lies in many runs of the slot.
//
//   slot    | w: 4 rows of 6, columns 0-1 are this writer's    | bias: this writer's |
//           | a a . . . . a a . . . . a a . . . . a a . . . .  | b b b b b b b b b b |
//   tiles   |   0: some         |   1: some          | 2: some         |  3: all     |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// How much of one tile a writer makes, if several processes write one slot.
enum class Share : std::uint8_t { kNone, kSome, kAll };

// Takes as much memory as its segments, and a byte per tile. Made once, and then read by any thread.
class SharePlan {
 public:
  // The elements of each segment, in C order, have rising addresses in the slot, like a box of a contiguous tensor. No
  // two segments share a byte, and all end within the slot. They need no order, and have no arithmetic.
  SharePlan(std::vector<Segment> segments, std::uint64_t slot_bytes);

  std::span<const Segment> segments() const { return segments_; }  // sorted by slot_offset
  // For each segment, the slot byte at which it ends, or one before it if that ends later.
  std::span<const std::uint64_t> ends() const { return ends_; }
  std::span<const Share> shares() const { return shares_; }  // of each tile

 private:
  std::vector<Segment> segments_;
  std::vector<std::uint64_t> ends_;
  std::vector<Share> shares_;
};

// Writes the segments of `plan` into `slot`, and no other byte. `tensors[i]` is the address of tensor i, of any
// alignment. For the tiles that the plan writes whole, stores the total in `totals`, which has an entry per tile,
// unless it is empty; the other tiles' totals cannot be known before all have written. Blocks; uses all threads of
// `pool` and 80 KiB of each one's stack; allocates nothing.
void pack_share(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
                std::span<TileTotal> totals, ThreadPool& pool);

}  // namespace bascule::inline v0::kernels
