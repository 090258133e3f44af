// Unpack, the reverse of pack: scatter a slot's elements to tensors, cast on the way, and digest the slot, in one pass
// over its bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Writes to the tensors the elements of `slot` that `segments` read. Segments are sorted by slot_offset. Each is a box
// of a contiguous tensor of the slot (by its slot_strides the elements in C order have rising addresses). They may read
// only a part of the slot, and the same bytes more than once; no two write the same element of a tensor. Casts go from
// slot_dtype to tensor_dtype, as can_cast() allows. `tensors[i]` is the address of tensor i, of any alignment.
//
// With `want_digest` returns the digest of the whole slot, whatever the segments read. Each byte is loaded once, so the
// digest covers the bytes that went to the tensors even if the slot changes meanwhile. (If an element crosses a tile's
// end, which happens in no Layout, its bytes past that end are loaded twice.) If the slot is still being written, a
// tile and the 7 bytes after it (elements may cross its end) must be there before that tile is read. Blocks; uses all
// threads of `pool`; allocates nothing.
std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool);

}  // namespace bascule::inline v0::kernels
