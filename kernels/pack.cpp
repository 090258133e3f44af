#include <bascule/kernels/pack.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include <bascule/kernels/gather.h>
#include <bascule/kernels/ordered_work.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

// Makes the tiles of one piece. Each thread has its own packer; they share only the slot.
class TilePacker {
 public:
  TilePacker(std::span<const Segment> segments, std::span<const Arithmetic> arithmetic,
             std::span<const std::byte* const> tensors, std::span<std::byte> slot, bool want_digest,
             const Processor& processor, TableOutput table)
      : segments_(segments),
        arithmetic_(arithmetic),
        tensors_(tensors),
        slot_(slot),
        want_digest_(want_digest),
        processor_(processor),
        stream_copy_(streaming_copy(slot, processor)),
        total_(table) {}

  // `piece` begins on a tile and ends on one or at the slot's end.
  void take(OrderedWork::Piece piece) {
    first_ = std::partition_point(segments_.begin(), segments_.end(),
                                  [&](const Segment& segment) { return slot_end_of(segment) <= piece.begin; });
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      begin = stream_products(begin, piece.end);
      if (begin >= piece.end) break;
      const auto tile = slot_.subspan(begin, std::min(kTileBytes, piece.end - begin));
      const TileSums sums = make_tile(tile, begin);
      if (want_digest_) total_.add(sums, begin / kTileBytes, tile.size());
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_.total(); }

 private:
  TileSums make_tile(std::span<std::byte> tile, std::uint64_t offset) {
    while (first_ != segments_.end() && slot_end_of(*first_) <= offset) ++first_;
    const bool streams = stream_copy_ != nullptr && tile.size() == kTileBytes;
    if (streams && is_of_runs(offset)) return stream_runs(tile.data(), offset);
    if (!streams && !want_digest_) {
      gather_tile(tile, offset);
      return {};
    }
    // The digest is made from this copy and not from the slot, so that readers' digests detect later changes of the
    // slot.
    alignas(64) std::array<std::byte, kTileBytes> gathered;  // stays in the cache
    gather_tile(std::span(gathered).first(tile.size()), offset);
    return store_tile(std::span(gathered).first(tile.size()), tile, stream_copy_, want_digest_, processor_);
  }

  TileWriter writer_of(const Segment& segment) const {
    return segment.tensor_dtype == segment.slot_dtype
               ? stream_copy_
               : processor_.tile_writer(segment.tensor_dtype, segment.slot_dtype);
  }
  // For a segment that is scaled; null for a product.
  ScaledWriter scaled_writer_of(const Segment& segment) const {
    return arithmetic_[segment.arithmetic].rank == 0
               ? processor_.scaled_writer(segment.tensor_dtype, segment.slot_dtype)
               : nullptr;
  }
  bool has_writer(const Segment& segment) const {
    return segment.arithmetic == kNoArithmetic ? writer_of(segment) != nullptr : scaled_writer_of(segment) != nullptr;
  }

  // Makes the tiles that lie within a product, if the next ones do. Returns their end, or `begin`.
  std::uint64_t stream_products(std::uint64_t begin, std::uint64_t end) {
    while (first_ != segments_.end() && slot_end_of(*first_) <= begin) ++first_;
    if (first_ == segments_.end() || first_->arithmetic == kNoArithmetic || stream_copy_ == nullptr) return begin;
    const Segment& segment = *first_;
    const Arithmetic& product = arithmetic_[segment.arithmetic];
    if (product.rank == 0 || segment.slot_offset > begin || segment.slot_offset % kLineBytes != 0 ||
        product.columns * size_of(segment.slot_dtype) % kLineBytes != 0)
      return begin;
    std::array<TileSums, kMostTiles> sums{};
    const std::uint64_t tiles =
        std::min<std::uint64_t>((std::min(end, slot_end_of(segment)) - begin) / kTileBytes, sums.size());
    if (tiles == 0) return begin;
    stream_product(segment, product, tensors_, begin, begin + tiles * kTileBytes, slot_.data(), sums.data(),
                   processor_);
    for (std::uint64_t i = 0; want_digest_ && i < tiles; ++i) total_.add(sums[i], begin / kTileBytes + i);
    return begin + tiles * kTileBytes;
  }

  // Whether the whole tile can be written run by run, each in whole lines. The layout aligns most tensors to lines.
  bool is_of_runs(std::uint64_t offset) const {
    const std::uint64_t tile_end = offset + kTileBytes;
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < tile_end; ++segment) {
      const std::uint64_t begin = std::max(offset, segment->slot_offset),
                          end = std::min(tile_end, slot_end_of(*segment));
      if (!segment->is_run() || begin % kLineBytes != 0 || end % kLineBytes != 0 ||
          (begin - segment->slot_offset) % size_of(segment->slot_dtype) != 0 || !has_writer(*segment))
        return false;
    }
    return true;
  }

  TileSums stream_runs(std::byte* tile, std::uint64_t offset) const {
    const std::uint64_t tile_end = offset + kTileBytes;
    TileSums sums;
    TileSums* const wanted = want_digest_ ? &sums : nullptr;
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < tile_end; ++segment) {
      const auto next = segment + 1;
      if (next != segments_.end() && next->slot_offset < tile_end) prefetch_run(*next, tensors_[next->tensor]);
      const std::uint64_t begin = std::max(offset, segment->slot_offset);
      const std::uint64_t end = std::min(tile_end, slot_end_of(*segment));
      const std::uint64_t skipped = (begin - segment->slot_offset) / size_of(segment->slot_dtype);
      const std::byte* const source =
          tensors_[segment->tensor] + segment->tensor_offset + skipped * size_of(segment->tensor_dtype);
      if (segment->arithmetic == kNoArithmetic) {
        writer_of (*segment)(source, tile, begin - offset, end - offset, wanted);
      } else {
        scaled_writer_of (*segment)(source, arithmetic_[segment->arithmetic].scale, tile, begin - offset, end - offset,
                                    wanted);
      }
    }
    return sums;
  }

  void gather_tile(std::span<std::byte> tile, std::uint64_t offset) const {
    const std::uint64_t tile_end = offset + tile.size();
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < tile_end; ++segment) {
      const std::uint64_t begin = std::max(offset, segment->slot_offset);
      const std::uint64_t end = std::min(tile_end, slot_end_of(*segment));
      if (begin >= end) continue;
      const std::uint64_t from = begin - segment->slot_offset, to = end - segment->slot_offset;
      std::byte* const target = tile.data() + (begin - offset);
      if (segment->arithmetic == kNoArithmetic) {
        gather(*segment, tensors_[segment->tensor], from, to, target, processor_);
      } else {
        gather(*segment, arithmetic_[segment->arithmetic], tensors_, from, to, target, processor_);
      }
    }
  }

  std::span<const Segment> segments_;
  std::span<const Arithmetic> arithmetic_;
  std::span<const std::byte* const> tensors_;
  std::span<std::byte> slot_;
  bool want_digest_;
  const Processor& processor_;
  TileWriter stream_copy_;                    // null: ordinary stores, directly into the slot
  std::span<const Segment>::iterator first_;  // the first segment that ends after the tile's beginning
  TileAdder total_;
};

[[maybe_unused]] bool cover(std::span<const Segment> segments, std::span<const Arithmetic> arithmetic,
                            std::size_t tensors, std::size_t slot_bytes) {
  std::uint64_t end = 0;
  for (const Segment& segment : segments) {
    if (segment.slot_offset != end || segment.tensor >= tensors || segment.rank > kMaxRank ||
        !can_cast(segment.tensor_dtype, segment.slot_dtype) || !can_compute(segment, arithmetic, tensors))
      return false;
    end = slot_end_of(segment);
  }
  return end == slot_bytes;
}

}  // namespace

bool can_cast(DType from, DType to) { return from == to || plain_processor().run_cast(from, to) != nullptr; }

bool can_compute(const Segment& segment, std::span<const Arithmetic> arithmetic, std::size_t tensors) {
  if (segment.arithmetic == kNoArithmetic) return true;
  if (segment.arithmetic >= arithmetic.size() || !widens_to_f32(segment.tensor_dtype) ||
      !widens_to_f32(segment.slot_dtype))
    return false;
  const Arithmetic& wanted = arithmetic[segment.arithmetic];
  if (wanted.rank == 0) return true;
  return wanted.rank <= kMaxProductRank && wanted.columns > 0 && segment.elements % wanted.columns == 0 &&
         wanted.left.tensor < tensors && wanted.right.tensor < tensors && widens_to_f32(wanted.left.dtype) &&
         widens_to_f32(wanted.right.dtype);
}

std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done, const Processor& processor,
                           std::span<const Arithmetic> arithmetic, TableOutput table) {
  assert(cover(segments, arithmetic, tensors.size(), slot.size()));
  assert(table.totals.empty() || (want_digest && table.totals.size() == tiles_of(slot.size())));
  return in_pieces(slot.size(), want_digest, pool, bytes_done,
                   [&] { return TilePacker(segments, arithmetic, tensors, slot, want_digest, processor, table); });
}

std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done, std::span<const Arithmetic> arithmetic,
                           TableOutput table) {
  return pack(segments, tensors, slot, want_digest, pool, bytes_done, best_processor(), arithmetic, table);
}

}  // namespace bascule::inline v0::kernels
