// PackPlan: the twin of pack.h on a device. One launch gathers, casts and digests a whole slot.
//
// Made when a model is registered, used at every send. Calls enqueue and return: nothing waits for the device, nothing
// is allocated. One thread at a time, and one stream at a time: what a call on another stream needs of an earlier one
// the caller orders by events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/cuda_table.h>

namespace bascule::inline v0::kernels::cuda {

class PackPlan final : public TilePlan {
 public:
  // For `segments` as pack() takes them, of `tensors` tensors, on the current device; cudaErrorInvalidValue where they
  // are not so. Blocks while the table is uploaded: 48 bytes a tile of 64 KiB, and 40 for each 4 KiB where tensors meet
  // in one, or for each tensor or row there.
  static CudaResult make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                         PackPlan* made);

  // Enqueues the pack of the whole slot: begin() and then advance() to its end.
  CudaResult pack(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream);

  // The same in steps, each a launch of its own, so that copies of what is packed already can run behind. `tensors[i]`
  // is the address of tensor i in memory that the device can read, of any alignment (16 bytes are fast); `slot` lies on
  // 16 bytes (else cudaErrorMisalignedAddress). A pack that was begun and not brought to its end may be left for
  // another.
  CudaResult begin(std::span<void* const> tensors, void* slot, bool want_digest, Stream stream);
  // Packs up to byte `end` of the slot: a multiple of kTileBytes, or slot_bytes().
  CudaResult advance(std::uint64_t end, Stream stream);

 private:
  std::byte* slot_ = nullptr;
  DigestOutput target_;
  std::uint64_t tiles_done_ = 0;
};

}  // namespace bascule::inline v0::kernels::cuda
