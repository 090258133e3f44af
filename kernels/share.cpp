#include <bascule/kernels/share.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include <bascule/kernels/box_runs.h>
#include <bascule/kernels/element_writer.h>
#include <bascule/kernels/gather.h>
#include <bascule/kernels/ordered_work.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/scatter.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

// Makes the tiles of one piece, as far as they are this writer's. Each thread has its own packer.
class SharePacker {
 public:
  SharePacker(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
              std::span<TileTotal> totals, const Processor& processor)
      : plan_(plan),
        tensors_(tensors),
        slot_(slot),
        want_totals_(!totals.empty()),
        processor_(processor),
        stream_copy_(streaming_copy(slot, processor)),
        total_({.totals = totals}) {}

  // `piece` begins on a tile and ends on one or at the slot's end.
  void take(OrderedWork::Piece piece) {
    std::size_t group = plan_.first_group(piece.begin);
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      const Share share = plan_.shares()[begin / kTileBytes];
      if (share == Share::kNone) continue;
      const std::uint64_t end = std::min(piece.end, begin + kTileBytes);
      const TileSums sums = make_tile(group, begin, end, share);
      if (want_totals_ && share == Share::kAll) total_.add(sums, begin / kTileBytes, end - begin);
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_.total(); }

 private:
  TileSums make_tile(std::size_t& group, std::uint64_t begin, std::uint64_t end, Share share) const {
    const std::span<std::byte> tile = slot_.subspan(begin, end - begin);
    if (stream_copy_ != nullptr && end - begin == kTileBytes && all_stream(group, begin, end))
      return stream(group, begin, end, want_totals_ && share == Share::kAll);
    if (share == Share::kSome || (stream_copy_ == nullptr && !want_totals_)) {
      gather(group, begin, end, tile.data());
      return {};
    }
    // The totals are made from this copy and not from the slot, so that readers detect later changes of the slot.
    alignas(64) std::array<std::byte, kTileBytes> gathered;  // stays in the cache
    gather(group, begin, end, gathered.data());
    return store_tile(std::span(gathered).first(tile.size()), tile, stream_copy_, want_totals_, processor_);
  }

  TileWriter writer_of(const Segment& box) const {
    return box.tensor_dtype == box.slot_dtype ? stream_copy_ : processor_.tile_writer(box.tensor_dtype, box.slot_dtype);
  }

  // Whether the box's bytes in the tile are runs of its tensor, and whole lines.
  bool streams(const Segment& box, std::uint64_t begin, std::uint64_t end) const {
    if (writer_of(box) == nullptr) return false;
    const BoxRuns runs(box);
    if (runs.elements() != box.elements) return runs.are_runs_of_the_tensor() && runs.are_whole_lines();
    return runs.are_runs_of_the_tensor() && box.slot_offset % size_of(box.slot_dtype) == 0 &&
           std::max(begin, box.slot_offset) % kLineBytes == 0 && std::min(end, slot_end_of(box)) % kLineBytes == 0;
  }

  bool all_stream(std::size_t& group, std::uint64_t begin, std::uint64_t end) const {
    bool all = true;
    plan_.for_each_in(begin, end, group, [&](const Segment& box) { all = all && streams(box, begin, end); });
    return all;
  }

  TileSums stream(std::size_t& group, std::uint64_t begin, std::uint64_t end, bool want_sums) const {
    TileSums sums;
    plan_.for_each_in(begin, end, group, [&](const Segment& box) {
      for_each_part(box, BoxRuns(box), begin, end, [&](const BoxRuns::Part& part) {
        writer_of(box)(tensors_[box.tensor] + part.tensor_offset, slot_.data() + begin, part.begin - begin,
                       part.end - begin, want_sums ? &sums : nullptr);
      });
    });
    return sums;
  }

  void gather(std::size_t& group, std::uint64_t begin, std::uint64_t end, std::byte* target) const {
    plan_.for_each_in(begin, end, group, [&](const Segment& box) {
      const std::byte* const tensor = tensors_[box.tensor];
      const ElementWriter writer(box, tensor, processor_);
      const BoxRuns runs(box);
      for_each_part(box, runs, begin, end, [&](const BoxRuns::Part& part) {
        std::byte* const to = target + (part.begin - begin);
        if (part.is_whole && runs.are_runs_of_the_tensor())
          return writer.write_run(tensor + part.tensor_offset, runs.elements(), to);
        write_bytes(size_of(box.slot_dtype), part.box_byte, part.box_byte + (part.end - part.begin), to,
                    [&](std::uint64_t first, std::uint64_t last, std::byte* some) { writer.write(first, last, some); });
      });
    });
  }

  // Asks for the next box's memory meanwhile: it lies elsewhere, and may be short.
  template <typename Visit>
  void for_each_part(const Segment& box, const BoxRuns& runs, std::uint64_t begin, std::uint64_t end,
                     const Visit& visit) const {
    const Segment* next = plan_.next(box);
    runs.for_each(begin, end, [&](const BoxRuns::Part& part) {
      if (next != nullptr)  // of boxes side by side, the same row
        prefetch_run(*next, tensors_[next->tensor] + (next->is_run() ? 0 : part.tensor_offset - box.tensor_offset));
      next = nullptr;
      visit(part);
    });
  }

  const SharePlan& plan_;
  std::span<const std::byte* const> tensors_;
  std::span<std::byte> slot_;
  bool want_totals_;
  const Processor& processor_;
  TileWriter stream_copy_;  // null: ordinary stores
  TileAdder total_;
};

// Where the first row of a box ends: all that lies under its outermost dimension's first index.
std::uint64_t first_row_end(const Segment& box) {
  const std::int64_t others = (box.shape[0] - 1) * box.slot_strides[0];
  return slot_reach_of(box) - static_cast<std::uint64_t>(others) * size_of(box.slot_dtype);
}

}  // namespace

SharePlan::SharePlan(std::vector<Segment> segments, std::uint64_t slot_bytes) : segments_(std::move(segments)) {
  std::ranges::sort(segments_, {}, &Segment::slot_offset);
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i].elements > 0) add_to_groups(i);
  shares_.reserve(tiles_of(slot_bytes));
  std::size_t group = 0;
  for (std::uint64_t begin = 0; begin < slot_bytes; begin += kTileBytes) {
    const std::uint64_t end = std::min(begin + kTileBytes, slot_bytes);
    std::uint64_t covered = 0;
    for_each_in(begin, end, group,
                [&](const Segment& box) { covered += bytes_before(box, end) - bytes_before(box, begin); });
    shares_.push_back(covered == end - begin ? Share::kAll : covered > 0 ? Share::kSome : Share::kNone);
  }
}

void SharePlan::add_to_groups(std::size_t index) {
  const Segment& box = segments_[index];
  const std::uint64_t end = slot_reach_of(box), element_bytes = size_of(box.slot_dtype);
  const std::uint64_t stride = box.is_run() ? 0 : static_cast<std::uint64_t>(box.slot_strides[0]) * element_bytes;
  Group* const last = groups_.empty() ? nullptr : &groups_.back();
  const std::uint64_t reached = last == nullptr ? end : std::max(end, last->reached);
  if (last != nullptr && stride > 0 && last->stride == stride && index == last->first + last->count &&
      first_row_end(segments_[index - 1]) <= box.slot_offset && first_row_end(box) <= last->begin + stride) {
    ++last->count;
    last->end = std::max(last->end, end);
    last->reached = reached;
    return;
  }
  groups_.push_back(
      {.first = index, .count = 1, .begin = box.slot_offset, .end = end, .stride = stride, .reached = reached});
}

std::size_t SharePlan::first_group(std::uint64_t begin) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(groups_, begin, {}, &Group::reached) - groups_.begin());
}

std::array<SharePlan::IndexRange, 2> SharePlan::indices_in(const Group& group, std::uint64_t begin,
                                                           std::uint64_t end) const {
  const IndexRange all{group.first, group.first + group.count};
  if (group.end <= begin) return {};
  const std::uint64_t from = std::max(begin, group.begin) - group.begin, length = end - group.begin - from;
  if (group.count == 1 || length >= group.stride) return {all};
  // In the first row, the bytes look like [from, from + length), which may go on at the row's beginning.
  const std::span<const Segment> boxes = std::span(segments_).subspan(group.first, group.count);
  const auto before = [&](std::uint64_t byte) {  // how many boxes begin before this byte of the row
    const auto found = std::ranges::lower_bound(boxes, group.begin + byte, {}, &Segment::slot_offset);
    return group.first + static_cast<std::size_t>(found - boxes.begin());
  };
  const std::uint64_t first = from % group.stride, last = first + length;
  const std::size_t wrapped = last > group.stride ? before(last - group.stride) : group.first;
  std::size_t reaching = before(first);
  if (reaching > group.first) --reaching;  // it may reach over `first`
  return {IndexRange{group.first, wrapped},
          IndexRange{std::max(reaching, wrapped), last >= group.stride ? all.end : before(last)}};
}

void pack_share(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
                std::span<TileTotal> totals, ThreadPool& pool, const Processor& processor) {
  assert(plan.shares().size() == tiles_of(slot.size()));
  assert(totals.empty() || totals.size() == plan.shares().size());
  in_pieces(slot.size(), false, pool, nullptr, [&] { return SharePacker(plan, tensors, slot, totals, processor); });
}

void pack_share(const SharePlan& plan, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
                std::span<TileTotal> totals, ThreadPool& pool) {
  pack_share(plan, tensors, slot, totals, pool, best_processor());
}

}  // namespace bascule::inline v0::kernels
