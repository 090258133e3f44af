// Unpack: scatter a slot's elements to tensors, cast on the way, and digest the slot, in one pass over its bytes. The
// reverse of pack.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Writes to the tensors what `segments` read of `slot`. They are sorted by slot_offset; each is a box out of a
// contiguous tensor of the slot (its elements rise in address in C order, as its slot_strides say), they may read only
// a part of the slot, and the same bytes more than once; no two write the same element of a tensor. Casts are those of
// can_cast(), from slot_dtype to tensor_dtype. `tensors[i]` is the address of tensor i, of any alignment.
//
// With `want_digest` the digest of the whole slot comes back, whatever the segments read. Each byte is loaded once: the
// digest is that of the bytes that went to the tensors, also where the slot changes meanwhile. (Of an element that lies
// across the end of a tile, which no Layout has, the bytes behind that end are loaded a second time.) A caller that
// copies behind the writer of the slot must have a tile and the 7 bytes after it (elements may lie across its end)
// before that tile is read. Blocks; uses all threads of `pool`; allocates nothing.
std::optional<Digest> unpack(std::span<const Segment> segments, std::span<std::byte* const> tensors,
                             std::span<const std::byte> slot, bool want_digest, ThreadPool& pool);

}  // namespace bascule::inline v0::kernels
