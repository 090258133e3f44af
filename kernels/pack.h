// Pack: gathers tensors into a slot, casts them on the way, and digests what it writes, in one pass over the bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/dtype.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Whether pack has this cast. Its casts are any type to itself; F32 to and from BF16 and F16; BF16 to and from F16,
// through F32; and F64 to and from F32, BF16 and F16. They round once, to nearest, ties to even; overflow becomes
// infinity, and denormals stay. In a cast to another type a NaN becomes that type's NaN with all bits but the sign set
// (BF16 and F16 0x7FFF, F32 0x7FFFFFFF); a copy of the same type keeps every bit.
bool can_cast(DType from, DType to);

// Whether pack can do the segment's arithmetic with factors among `tensors` tensors: all types widen to F32, the rank
// is at most kMaxProductRank, and the columns divide the segment's elements. True for a segment without arithmetic.
bool can_compute(const Segment& segment, std::span<const Arithmetic> arithmetic, std::size_t tensors);

// Writes every byte of `slot` from the tensors. `segments` must be sorted by slot_offset, cover the slot without gap or
// overlap, and be dense in the slot: slot_strides follow C order over `shape`. `tensors[i]` is the address of tensor i,
// of any alignment. With `want_digest`, returns the slot's digest, made in the same pass. `bytes_done`, if given, must
// be zero at first; pack raises it (release) with the slot's complete prefix, which readers may copy meanwhile.
// `arithmetic` is what Segment::arithmetic refers to (can_compute()). With `want_digest`, `table` may ask for the
// slot's digest table; if its first page is not page 0, only the table is of use, not the returned digest. Blocks; uses
// all threads of `pool` and 224 KiB of each one's stack; allocates nothing.
std::optional<Digest> pack(std::span<const Segment> segments, std::span<const std::byte* const> tensors,
                           std::span<std::byte> slot, bool want_digest, ThreadPool& pool,
                           std::atomic<std::uint64_t>* bytes_done = nullptr,
                           std::span<const Arithmetic> arithmetic = {}, TableOutput table = {});

}  // namespace bascule::inline v0::kernels
