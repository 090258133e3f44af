// UnpackPlan: the twin of unpack.h on a device. One launch scatters, casts and digests a whole slot. Everything else is
// as for PackPlan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/cuda_table.h>

namespace bascule::inline v0::kernels::cuda {

class UnpackPlan final : public TilePlan {
 public:
  // Makes a plan. Returns cudaErrorInvalidValue if `segments` do not meet unpack()'s conditions. If the slot consists
  // of several `regions`, of about equal sizes and perhaps on several devices, all are read at once, so that the links
  // to them are used together.
  static CudaResult make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                         UnpackPlan* made, std::uint32_t regions = 1);

  // Enqueues the unpack of the whole slot, which the device can read and which is aligned to 16 bytes. With
  // `want_digest`, all of the slot is digested, even parts that no segment reads. Without it, only tiles that
  // `of_tiles` wants are hashed.
  CudaResult unpack(const void* slot, std::span<void* const> tensors, bool want_digest, Stream stream,
                    const TileOutput& of_tiles = {});

 private:
  std::uint32_t regions_ = 1;
};

}  // namespace bascule::inline v0::kernels::cuda
