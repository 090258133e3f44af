// Pack: gather tensors into a slot, cast on the way, and digest what was written, in one pass over the bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/dtype.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Pack's casts: any type to itself; F32 to and from BF16 and F16; BF16 to and from F16 through F32; F64 to F32, BF16,
// F16 and back. They round once, to nearest, ties to even; overflow becomes infinity, denormals stay. In a cast to
// another type a NaN becomes that type's NaN with all bits but the sign set (BF16 and F16 0x7FFF, F32 0x7FFFFFFF); a
// copy of the same type keeps every bit.
bool can_cast(DType from, DType to);

// Writes every byte of `slot` from the tensors. `segments` are sorted by slot_offset, cover the slot without gap or
// overlap, and are dense in the slot: slot_strides follow C order over `shape`. `tensors[i]` is the address of tensor
// i, of any alignment. With `want_digest` returns the slot's digest, made in the same pass. If `bytes_done` is given
// (zero at first), it grows (release) with the complete prefix of the slot, so that readers may copy it meanwhile.
// Blocks; uses all threads of `pool` and 64 KiB of their stacks; allocates nothing.
std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done = nullptr);

}  // namespace bascule::inline v0::kernels
