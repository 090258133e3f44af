// PackPlan: the twin of pack.h on a device. One launch gathers, casts and digests a whole slot.
//
// A plan is made when a model is registered, and used by every send. Calls enqueue work and return: they neither wait
// for the device nor allocate. One thread and one stream at a time; a caller that changes streams orders them by
// events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/cuda_table.h>

namespace bascule::inline v0::kernels::cuda {

class PackPlan final : public TilePlan {
 public:
  // Makes a plan on the current device, for `segments` of `tensors` tensors. Returns cudaErrorInvalidValue if the
  // segments do not meet pack()'s conditions, or need arithmetic that cannot be done (can_compute()). Blocks while the
  // table is uploaded. The table takes 48 bytes per tile of 64 KiB, 256 more per tile of a transposed matrix and, in
  // tiles where tensors meet, 40 bytes per 4 KiB, tensor or row. If the slot is a region of a version, `first_page` is
  // the number of its first page, and total() is of use rather than digest().
  static CudaResult make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                         PackPlan* made, std::span<const Arithmetic> arithmetic = {}, std::uint64_t first_page = 0);

  // Enqueues the pack of the whole slot: calls begin(), then advance() to the slot's end.
  CudaResult pack(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream,
                  const TileOutput& of_tiles = {});

  // Like pack(), but in steps, one launch each, so that packed bytes can be copied meanwhile. `tensors[i]` is the
  // address of tensor i in memory that the device can read, of any alignment (16 bytes are fast); `slot` is aligned to
  // 16 bytes (else cudaErrorMisalignedAddress). begin() may follow a pack that was not finished. With `want_digest`,
  // `of_tiles` receives the totals of all tiles, if makes_totals().
  CudaResult begin(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream,
                   const TileOutput& of_tiles = {});
  // False for plans with arithmetic, whose blocks do not take single tiles.
  bool makes_totals() const { return !table_.computes(); }
  // Packs up to byte `end` of the slot: a multiple of kTileBytes, or slot_bytes().
  CudaResult advance(std::uint64_t end, Stream stream);

 private:
  std::byte* slot_ = nullptr;
  DigestOutput target_;
  std::uint64_t tiles_done_ = 0, first_page_ = 0;
  DeviceMemory page_sums_;  // PageSums of the pages of transposed tiles
};

}  // namespace bascule::inline v0::kernels::cuda
