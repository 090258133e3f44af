#include "kernels/unpack.h"

#include <algorithm>
#include <cassert>

#include "kernels/pack.h"
#include "kernels/prefix.h"
#include "kernels/processor.h"
#include "kernels/scatter.h"
#include "kernels/thread_pool.h"
#include "kernels/tiles.h"

namespace bascule::kernels {
namespace {

// Takes tiles of the slot apart, in rising order. Each thread has its own.
class TileUnpacker {
 public:
  TileUnpacker(std::span<const Segment> segments, std::span<std::byte* const> tensors, std::span<const std::byte> slot,
               bool want_digest, const Processor& processor)
      : segments_(segments),
        tensors_(tensors),
        slot_(slot),
        want_digest_(want_digest),
        processor_(processor),
        stream_copy_(slot.size() > kFitsInCachesBytes ? processor.tile_writer(DType::kU8, DType::kU8) : nullptr),
        first_(segments_.begin()) {}

  // `piece` begins on a tile and ends on one or at the slot's end.
  void take(Prefix::Piece piece) {
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      const TileSums sums = take_tile(begin, std::min(begin + kTileBytes, slot_.size()));
      if (want_digest_) total_.add(sums, begin / kTileBytes);
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_; }

 private:
  TileSums take_tile(std::uint64_t begin, std::uint64_t end) {
    while (first_ != segments_.end() && slot_reach_of(*first_) <= begin) ++first_;
    const std::span<const std::byte> tile = slot_.subspan(begin, end - begin);
    if (std::byte* target = run_of_whole_tile(begin, end))
      return stream_copy_(tile.data(), target, 0, kTileBytes, want_digest_);
    const TileSums sums = want_digest_ ? tile_sums(tile, processor_) : TileSums{};
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < end; ++segment) {
      const std::uint64_t first = elements_before(*segment, begin), last = elements_before(*segment, end);
      if (first < last) scatter(*segment, first, last, slot_.data(), tensors_[segment->tensor], processor_);
    }
    return sums;
  }

  // Where the tile goes, if it is a whole one, all of it goes to one place unchanged, and past the caches.
  std::byte* run_of_whole_tile(std::uint64_t begin, std::uint64_t end) const {
    constexpr std::uintptr_t kAlignment = 32;
    if (stream_copy_ == nullptr || end - begin < kTileBytes || first_ == segments_.end()) return nullptr;
    const Segment& segment = *first_;
    const auto next = first_ + 1;
    if (!segment.is_run() || segment.tensor_dtype != segment.slot_dtype || segment.slot_offset > begin ||
        slot_reach_of(segment) < end || (begin - segment.slot_offset) % size_of(segment.slot_dtype) != 0 ||
        (next != segments_.end() && next->slot_offset < end))
      return nullptr;
    std::byte* target = tensors_[segment.tensor] + segment.tensor_offset + (begin - segment.slot_offset);
    return reinterpret_cast<std::uintptr_t>(target) % kAlignment == 0 ? target : nullptr;
  }

  std::span<const Segment> segments_;
  std::span<std::byte* const> tensors_;
  std::span<const std::byte> slot_;
  bool want_digest_;
  const Processor& processor_;
  TileWriter stream_copy_;                    // null: ordinary stores
  std::span<const Segment>::iterator first_;  // all before it end before the tile
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
                             const Processor& processor) {
  assert(fit(segments, tensors.size(), slot.size()));
  const std::size_t hands = std::min(static_cast<std::size_t>(pool.threads()), Prefix::kMaxHands);
  Prefix prefix(slot.size(), piece_bytes_of(slot.size(), pool.threads()), hands, nullptr);
  SharedTotal shared;
  pool.run(std::min(hands, prefix.pieces()), [&](std::size_t hand) {
    TileUnpacker unpacker(segments, tensors, slot, want_digest, processor);
    while (const std::optional<Prefix::Piece> piece = prefix.next(hand)) unpacker.take(*piece);
    shared.add(unpacker.total());
  });
  if (!want_digest) return std::nullopt;
  return shared.total().finish(slot.size());
}

std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool) {
  return unpack(segments, tensors, slot, want_digest, pool, best_processor());
}

}  // namespace bascule::kernels
