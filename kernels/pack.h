// Pack: gather tensors into a slot, cast on the way, and digest what was written, in one pass over the bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/digest.h"
#include "kernels/dtype.h"

namespace bascule::kernels {

inline constexpr std::size_t kMaxRank = 6;  // after neighbouring dimensions that lie in one run were merged

// `elements` elements of one tensor and where they lie in the slot: offsets only, so that a table made once
// serves every address. Walked in C order over `shape`; the slot's side and the tensor's side each have
// strides of their own, in elements, of any sign, zero included. Where `rank` is 1 and both strides are 1,
// the segment is one run of bytes on both sides; rank 0 is a scalar and such a run, too.
struct Segment {
  std::uint32_t tensor = 0;  // index into the list of tensor addresses
  DType tensor_dtype = DType::kF32;
  DType slot_dtype = DType::kF32;
  std::uint32_t rank = 1;
  std::uint64_t tensor_offset = 0;  // bytes from the tensor's address
  std::uint64_t slot_offset = 0;    // bytes from the slot's beginning
  std::uint64_t elements = 0;
  std::array<std::int64_t, kMaxRank> shape{};           // shape[0] is the outermost
  std::array<std::int64_t, kMaxRank> tensor_strides{};  // elements
  std::array<std::int64_t, kMaxRank> slot_strides{};    // elements

  bool is_run() const { return rank == 0 || (rank == 1 && tensor_strides[0] == 1 && slot_strides[0] == 1); }
};

// Casts that pack knows: any type to itself; F32 to and from BF16 and F16; BF16 to and from F16 by way of
// F32; F64 to F32, BF16, F16 and back. Rounds once, to nearest, ties to even; overflow becomes infinity,
// denormals stay. In a cast to another type a NaN becomes that type's NaN with all bits but the sign set
// (BF16 and F16 0x7FFF, F32 0x7FFFFFFF); a copy of the same type keeps every bit.
bool can_cast(DType from, DType to);

// Writes every byte of `slot` from the tensors. `segments` are sorted by slot_offset, cover the slot without
// gap or overlap, and are dense on the slot's side: its strides are those of C order over `shape`.
// `tensors[i]` is the address of tensor i, of any alignment. With `want_digest` the digest of the slot comes
// back, made in the same pass. Where `bytes_done` is given (zero at first), it grows (release) with the
// prefix of the slot that is complete, so that readers may copy behind the writer. Blocks; uses all threads
// of `pool` and 64 KiB of their stacks; allocates nothing.
std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done = nullptr);

}  // namespace bascule::kernels
