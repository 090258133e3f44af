#include <bascule/kernels/unpack.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include <bascule/kernels/ordered_work.h>
#include <bascule/kernels/pack.h>
#include <bascule/kernels/processor.h>
#include <bascule/kernels/scatter.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

// Unpacks tiles of the slot in rising order. Each thread has its own unpacker.
class TileUnpacker {
 public:
  TileUnpacker(std::span<const Segment> segments, std::span<std::byte* const> tensors, std::span<const std::byte> slot,
               bool want_digest, WantedTotals tiles, const Processor& processor)
      : segments_(segments),
        tensors_(tensors),
        slot_(slot),
        want_digest_(want_digest),
        tiles_(tiles),
        processor_(processor),
        stream_copy_(slot.size() > kFitsInCachesBytes ? processor.tile_writer(DType::kU8, DType::kU8) : nullptr),
        first_(segments_.begin()) {}

  // `piece` begins on a tile and ends on one or at the slot's end.
  void take(OrderedWork::Piece piece) {
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      const std::uint64_t end = std::min(begin + kTileBytes, slot_.size());
      const std::uint64_t tile = begin / kTileBytes;
      const bool wanted = !want_digest_ && !tiles_.wanted.empty() && tiles_.wanted[tile] != 0;
      const TileSums sums = take_tile(begin, end, want_digest_ || wanted);
      if (want_digest_) total_.add(sums, tile, end - begin);
      if (wanted) {
        tiles_.totals[tile] = {};
        tiles_.totals[tile].add(sums, tile, end - begin);
      }
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_; }

 private:
  static constexpr std::size_t kMostBehind = 7;  // an element that begins in a tile may reach so many bytes past it

  TileSums take_tile(std::uint64_t begin, std::uint64_t end, bool digest) {
    while (first_ != segments_.end() && slot_reach_of(*first_) <= begin) ++first_;
    const std::span<const std::byte> tile = slot_.subspan(begin, end - begin);
    if (std::byte* const target = run_of_tile(begin, end)) return copy_tile(tile, target, digest);
    if (!digest) {
      scatter_tile(begin, end, slot_.data(), 0);
      return {};
    }
    if (first_ == segments_.end() || first_->slot_offset >= end) return tile_sums(tile, processor_);
    // Loaded once, so that the digested bytes go to the tensors even if the slot changes meanwhile.
    alignas(64) std::array<std::byte, kTileBytes + kMostBehind> loaded;  // stays in the cache
    std::memcpy(loaded.data(), tile.data(), std::min(tile.size() + kMostBehind, slot_.size() - begin));
    const TileSums sums = tile_sums(std::span(loaded).first(tile.size()), processor_);
    scatter_tile(begin, end, loaded.data(), begin);
    return sums;
  }

  // Scatters the elements that begin in [begin, end), from `bytes`, which begin at `bytes_begin` of the slot.
  void scatter_tile(std::uint64_t begin, std::uint64_t end, const std::byte* bytes, std::uint64_t bytes_begin) const {
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < end; ++segment) {
      const std::uint64_t first = elements_before(*segment, begin), last = elements_before(*segment, end);
      if (first < last) scatter(*segment, first, last, bytes, bytes_begin, tensors_[segment->tensor], processor_);
    }
  }

  // The target of the tile, if the whole tile goes to one place unchanged.
  std::byte* run_of_tile(std::uint64_t begin, std::uint64_t end) const {
    if (first_ == segments_.end()) return nullptr;
    const Segment& segment = *first_;
    const auto next = first_ + 1;
    if (!segment.is_run() || segment.tensor_dtype != segment.slot_dtype || segment.slot_offset > begin ||
        slot_reach_of(segment) < end || (begin - segment.slot_offset) % size_of(segment.slot_dtype) != 0 ||
        (end - begin) % size_of(segment.slot_dtype) != 0 || (next != segments_.end() && next->slot_offset < end))
      return nullptr;
    return tensors_[segment.tensor] + segment.tensor_offset + (begin - segment.slot_offset);
  }

  // Bypasses the caches if possible; otherwise digests the written bytes.
  TileSums copy_tile(std::span<const std::byte> tile, std::byte* target, bool digest) const {
    constexpr std::uintptr_t kAlignment = 32;
    if (stream_copy_ != nullptr && tile.size() == kTileBytes &&
        reinterpret_cast<std::uintptr_t>(target) % kAlignment == 0) {
      TileSums sums;
      stream_copy_(tile.data(), target, 0, kTileBytes, digest ? &sums : nullptr);
      return sums;
    }
    std::memcpy(target, tile.data(), tile.size());
    return digest ? tile_sums({target, tile.size()}, processor_) : TileSums{};
  }

  std::span<const Segment> segments_;
  std::span<std::byte* const> tensors_;
  std::span<const std::byte> slot_;
  bool want_digest_;
  WantedTotals tiles_;
  const Processor& processor_;
  TileWriter stream_copy_;                    // null: ordinary stores
  std::span<const Segment>::iterator first_;  // all earlier segments end before the tile
  TileTotal total_;
};

[[maybe_unused]] bool fit(std::span<const Segment> segments, std::size_t tensors, std::size_t slot_bytes) {
  std::uint64_t offset = 0;
  for (const Segment& segment : segments) {
    if (segment.slot_offset < offset || segment.tensor >= tensors || segment.rank > kMaxRank ||
        slot_reach_of(segment) > slot_bytes || !can_cast(segment.slot_dtype, segment.tensor_dtype))
      return false;
    offset = segment.slot_offset;
  }
  return true;
}

}  // namespace

std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool,
                             const Processor& processor, WantedTotals tiles) {
  assert(fit(segments, tensors.size(), slot.size()));
  assert(tiles.wanted.size() == tiles.totals.size() &&
         (tiles.wanted.empty() || tiles.wanted.size() == tiles_of(slot.size())));
  return in_pieces(slot.size(), want_digest, pool, nullptr,
                   [&] { return TileUnpacker(segments, tensors, slot, want_digest, tiles, processor); });
}

std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool, WantedTotals tiles) {
  return unpack(segments, tensors, slot, want_digest, pool, best_processor(), tiles);
}

}  // namespace bascule::inline v0::kernels
