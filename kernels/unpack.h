// Unpack, the reverse of pack: scatters a slot's elements to tensors, casts them on the way, and digests the slot, in
// one pass over its bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/digest_table.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Writes to the tensors the elements of `slot` that `segments` read. Segments must be sorted by slot_offset. Each must
// be a box of a contiguous tensor in the slot, so that its elements in C order have rising addresses there. Segments
// may leave parts of the slot unread, and may read the same bytes more than once, but no two may write the same element
// of a tensor. Casts go from slot_dtype to tensor_dtype, as can_cast() allows. `tensors[i]` is the address of tensor i,
// of any alignment.
//
// With `want_digest`, returns the digest of the whole slot, even of parts that no segment reads. Each byte is loaded
// once, so the digest covers the very bytes that went to the tensors, even if the slot changes meanwhile. (An exception
// is an element that crosses a tile's end, which happens in no Layout: its bytes past that end are loaded twice.) If
// the slot is still being written, a tile and, because elements may cross its end, the 7 bytes after it must be there
// before that tile is read. Without `want_digest`, `tiles` may ask for the totals of some tiles, which also cover the
// very bytes that went to the tensors. Blocks; uses all threads of `pool`; allocates nothing.
std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool,
                             WantedTotals tiles = {});

}  // namespace bascule::inline v0::kernels
