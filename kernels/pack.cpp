#include "kernels/pack.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "kernels/gather.h"
#include "kernels/prefix.h"
#include "kernels/processor.h"
#include "kernels/thread_pool.h"
#include "kernels/tiles.h"

namespace bascule::kernels {
namespace {

// Makes the tiles of one piece. Each thread has its own: two stack frames that share nothing but the slot.
class TilePacker {
 public:
  TilePacker(std::span<const Segment> segments, std::span<const std::byte* const> tensors, std::span<std::byte> slot,
             bool want_digest, const Processor& processor)
      : segments_(segments),
        tensors_(tensors),
        slot_(slot),
        want_digest_(want_digest),
        processor_(processor),
        stream_copy_(pays_to_stream(slot) ? processor.tile_writer(DType::kU8, DType::kU8) : nullptr) {}

  // `piece` begins on a tile and ends on one or at the slot's end.
  void make(Prefix::Piece piece) {
    first_ = std::partition_point(segments_.begin(), segments_.end(),
                                  [&](const Segment& segment) { return slot_end_of(segment) <= piece.begin; });
    for (std::uint64_t begin = piece.begin; begin < piece.end; begin += kTileBytes) {
      const TileSums sums = make_tile(slot_.subspan(begin, std::min(kTileBytes, piece.end - begin)), begin);
      if (want_digest_) total_.add(sums, begin / kTileBytes);
    }
    processor_.flush();
  }

  const TileTotal& total() const { return total_; }

 private:
  static bool pays_to_stream(std::span<const std::byte> slot) {
    constexpr std::uintptr_t kAlignment = 32;
    return slot.size() > kFitsInCachesBytes && reinterpret_cast<std::uintptr_t>(slot.data()) % kAlignment == 0;
  }

  TileSums make_tile(std::span<std::byte> tile, std::uint64_t offset) {
    while (first_ != segments_.end() && slot_end_of(*first_) <= offset) ++first_;
    if (stream_copy_ == nullptr || tile.size() < kTileBytes) {
      gather_tile(tile, offset);
      return want_digest_ ? tile_sums(tile, processor_) : TileSums{};
    }
    if (first_->is_run() && slot_end_of(*first_) >= offset + kTileBytes) {
      const std::uint64_t skipped = (offset - std::min(offset, first_->slot_offset));
      const std::uint64_t element_bytes = size_of(first_->slot_dtype);
      const TileWriter writer = first_->tensor_dtype == first_->slot_dtype
                                    ? stream_copy_
                                    : processor_.tile_writer(first_->tensor_dtype, first_->slot_dtype);
      if (writer != nullptr && first_->slot_offset <= offset && skipped % element_bytes == 0)
        return writer(
            tensors_[first_->tensor] + first_->tensor_offset + skipped / element_bytes * size_of(first_->tensor_dtype),
            tile.data(), want_digest_);
    }
    alignas(64) std::array<std::byte, kTileBytes> gathered;  // stays in the cache
    gather_tile(gathered, offset);
    return stream_copy_(gathered.data(), tile.data(), want_digest_);
  }

  void gather_tile(std::span<std::byte> tile, std::uint64_t offset) const {
    const std::uint64_t tile_end = offset + tile.size();
    for (auto segment = first_; segment != segments_.end() && segment->slot_offset < tile_end; ++segment) {
      const std::uint64_t begin = std::max(offset, segment->slot_offset);
      const std::uint64_t end = std::min(tile_end, slot_end_of(*segment));
      if (begin < end)
        gather(*segment, tensors_[segment->tensor], begin - segment->slot_offset, end - segment->slot_offset,
               tile.data() + (begin - offset), processor_);
    }
  }

  std::span<const Segment> segments_;
  std::span<const std::byte* const> tensors_;
  std::span<std::byte> slot_;
  bool want_digest_;
  const Processor& processor_;
  TileWriter stream_copy_;                    // null: ordinary stores, straight into the slot
  std::span<const Segment>::iterator first_;  // the first segment that ends behind the tile's beginning
  TileTotal total_;
};

[[maybe_unused]] bool cover(std::span<const Segment> segments, std::size_t tensors, std::size_t slot_bytes) {
  std::uint64_t end = 0;
  for (const Segment& segment : segments) {
    if (segment.slot_offset != end || segment.tensor >= tensors || segment.rank > kMaxRank ||
        !can_cast(segment.tensor_dtype, segment.slot_dtype))
      return false;
    end = slot_end_of(segment);
  }
  return end == slot_bytes;
}

}  // namespace

bool can_cast(DType from, DType to) { return from == to || plain_processor().run_cast(from, to) != nullptr; }

std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done, const Processor& processor) {
  assert(cover(segments, tensors.size(), slot.size()));
  const std::size_t hands = std::min(static_cast<std::size_t>(pool.threads()), Prefix::kMaxHands);
  Prefix prefix(slot.size(), piece_bytes_of(slot.size(), pool.threads()), hands, bytes_done);
  SharedTotal shared;
  // No more hands than pieces: waking a thread costs more than a small slot.
  pool.run(std::min(hands, prefix.pieces()), [&](std::size_t hand) {
    TilePacker packer(segments, tensors, slot, want_digest, processor);
    while (const std::optional<Prefix::Piece> piece = prefix.next(hand)) packer.make(*piece);
    shared.add(packer.total());
  });
  if (!want_digest) return std::nullopt;
  return shared.total().finish(slot.size());
}

std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done) {
  return pack(segments, tensors, slot, want_digest, pool, bytes_done, best_processor());
}

}  // namespace bascule::kernels
