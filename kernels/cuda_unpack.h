// UnpackPlan: the twin of unpack.h on a device. One launch scatters, casts and digests a whole slot. In all else it is
// like PackPlan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/cuda_table.h>

namespace bascule::inline v0::kernels::cuda {

class UnpackPlan final : public TilePlan {
 public:
  // For `segments` that meet unpack()'s conditions (else cudaErrorInvalidValue).
  static CudaResult make(std::span<const Segment> segments, std::size_t tensors, std::uint64_t slot_bytes,
                         UnpackPlan* made);

  // Enqueues the unpack of the whole slot, which the device can read and which is aligned to 16 bytes. With
  // `want_digest` all of it is digested, whatever the segments read.
  CudaResult unpack(const void* slot, std::span<void* const> tensors, bool want_digest, Stream stream);
};

}  // namespace bascule::inline v0::kernels::cuda
