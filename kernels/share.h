// SharePlan: one writer's part of a slot that others write at the same time. Each box takes one segment, even if it is
// cut by columns and therefore lies in many runs of the slot.
//
//   slot    | w: 4 rows of 6, columns 0-1 are this writer's    | bias: this writer's |
//           | a a . . . . a a . . . . a a . . . . a a . . . .  | b b b b b b b b b b |
//   tiles   |   0: some         |   1: some          | 2: some         |  3: all     |
#pragma once

#include <array>
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

  std::span<const Share> shares() const { return shares_; }  // of each tile

  // The segment after this one of the plan, in the order of the slot; null after the last.
  const Segment* next(const Segment& segment) const { return &segment == &segments_.back() ? nullptr : &segment + 1; }

  // Returns where for_each_in() begins to look for segments that end after byte `begin` of the slot.
  std::size_t first_group(std::uint64_t begin) const;
  // Calls visit(segment) for all segments that have bytes in [begin, end) of the slot, and perhaps for a few others;
  // for none twice. `group` is from first_group() for this byte or an earlier one, and is moved on.
  template <typename Visit>
  void for_each_in(std::uint64_t begin, std::uint64_t end, std::size_t& group, const Visit& visit) const {
    while (group < groups_.size() && groups_[group].reached <= begin) ++group;
    for (std::size_t g = group; g < groups_.size() && groups_[g].begin < end; ++g)
      for (const IndexRange& some : indices_in(groups_[g], begin, end))
        for (std::size_t i = some.begin; i < some.end; ++i) visit(segments_[i]);
  }

 private:
  // Boxes side by side, such as those that a writer has of a tensor that is cut by columns. Their rows are `stride`
  // bytes apart, and all first rows lie within that many bytes, one after the other. So in a tile with few rows, a
  // search finds the boxes. A box with no such neighbour is its own group.
  struct Group {
    std::size_t first = 0, count = 0;  // of segments_
    std::uint64_t begin = 0, end = 0;  // bytes of the slot
    std::uint64_t stride = 0;          // 0: a run
    std::uint64_t reached = 0;         // the end of this group, or of one before it that ends later
  };
  struct IndexRange {
    std::size_t begin = 0, end = 0;
  };
  void add_to_groups(std::size_t index);
  std::array<IndexRange, 2> indices_in(const Group& group, std::uint64_t begin, std::uint64_t end) const;

  std::vector<Segment> segments_;  // sorted by slot_offset
  std::vector<Group> groups_;
  std::vector<Share> shares_;
};

// Writes the segments of `plan` into `slot`, and no other byte. `tensors[i]` is the address of tensor i, of any
// alignment. For the tiles that the plan writes whole, stores the total in `totals`, which has an entry per tile,
// unless it is empty; the other tiles' totals cannot be known before all have written. Blocks; uses all threads of
// `pool` and 80 KiB of each one's stack; allocates nothing.
void pack_share(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
                std::span<TileTotal> totals, ThreadPool& pool);

}  // namespace bascule::inline v0::kernels
