#include <bascule/kernels/share.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include <bascule/kernels/box_runs.h>
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
    auto first = static_cast<std::size_t>(std::ranges::upper_bound(plan_.ends(), piece.begin) - plan_.ends().begin());
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      const Share share = plan_.shares()[begin / kTileBytes];
      if (share == Share::kNone) continue;
      const std::uint64_t end = std::min(piece.end, begin + kTileBytes);
      const std::span<const Segment> inside = boxes_in(begin, end, first);
      const TileSums sums = make_tile(inside, begin, end, share);
      if (want_totals_ && share == Share::kAll) total_.add(sums, begin / kTileBytes, end - begin);
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_.total(); }

 private:
  // Among these are all boxes that have bytes there. The boxes of a tensor may interlock, so some may have none.
  // `first` is the first that may have some; it rises with `begin`.
  std::span<const Segment> boxes_in(std::uint64_t begin, std::uint64_t end, std::size_t& first) const {
    const std::span<const Segment> boxes = plan_.segments();
    while (first < boxes.size() && plan_.ends()[first] <= begin) ++first;
    std::size_t last = first;
    while (last < boxes.size() && boxes[last].slot_offset < end) ++last;
    return boxes.subspan(first, last - first);
  }

  TileSums make_tile(std::span<const Segment> inside, std::uint64_t begin, std::uint64_t end, Share share) const {
    const std::span<std::byte> tile = slot_.subspan(begin, end - begin);
    if (stream_copy_ != nullptr && end - begin == kTileBytes &&
        std::ranges::all_of(inside, [&](const Segment& box) { return streams(box, begin, end); }))
      return stream(inside, begin, end, want_totals_ && share == Share::kAll);
    if (share == Share::kSome || (stream_copy_ == nullptr && !want_totals_)) {
      gather(inside, begin, end, tile.data());
      return {};
    }
    // The totals are made from this copy and not from the slot, so that readers detect later changes of the slot.
    alignas(64) std::array<std::byte, kTileBytes> gathered;  // stays in the cache
    gather(inside, begin, end, gathered.data());
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

  TileSums stream(std::span<const Segment> inside, std::uint64_t begin, std::uint64_t end, bool want_sums) const {
    TileSums sums;
    for (const Segment& box : inside) {
      if (&box != &inside.back()) prefetch_run(*(&box + 1), tensors_[(&box + 1)->tensor]);
      BoxRuns(box).for_each(begin, end, [&](const BoxRuns::Part& part) {
        writer_of(box)(tensors_[box.tensor] + part.tensor_offset, slot_.data() + begin, part.begin - begin,
                       part.end - begin, want_sums ? &sums : nullptr);
      });
    }
    return sums;
  }

  void gather(std::span<const Segment> inside, std::uint64_t begin, std::uint64_t end, std::byte* target) const {
    for (const Segment& box : inside) gather_box(box, tensors_[box.tensor], begin, end, target, processor_);
  }

  const SharePlan& plan_;
  std::span<const std::byte* const> tensors_;
  std::span<std::byte> slot_;
  bool want_totals_;
  const Processor& processor_;
  TileWriter stream_copy_;  // null: ordinary stores
  TileAdder total_;
};

}  // namespace

SharePlan::SharePlan(std::vector<Segment> segments, std::uint64_t slot_bytes) : segments_(std::move(segments)) {
  std::ranges::sort(segments_, {}, &Segment::slot_offset);
  ends_.reserve(segments_.size());
  std::vector<std::uint32_t> covered(tiles_of(slot_bytes));  // bytes of each tile
  for (const Segment& segment : segments_) {
    const std::uint64_t end = slot_reach_of(segment);
    ends_.push_back(ends_.empty() ? end : std::max(end, ends_.back()));
    std::uint64_t before = 0;
    for (std::uint64_t tile = segment.slot_offset / kTileBytes; tile * kTileBytes < end; ++tile) {
      const std::uint64_t until = bytes_before(segment, (tile + 1) * kTileBytes);
      covered[tile] += static_cast<std::uint32_t>(until - before);
      before = until;
    }
  }
  shares_.reserve(covered.size());
  for (std::uint64_t tile = 0; tile < covered.size(); ++tile)
    shares_.push_back(covered[tile] == std::min(kTileBytes, slot_bytes - tile * kTileBytes) ? Share::kAll
                      : covered[tile] > 0                                                   ? Share::kSome
                                                                                            : Share::kNone);
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
