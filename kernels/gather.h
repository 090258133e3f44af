// Gather: fills a piece of the slot from one segment, with casts or arithmetic on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

inline std::uint64_t slot_bytes_of(const Segment& segment) { return segment.elements * size_of(segment.slot_dtype); }
inline std::uint64_t slot_end_of(const Segment& segment) { return segment.slot_offset + slot_bytes_of(segment); }

// Writes bytes [begin, end) of the segment's part of the slot, counted from its slot_offset, to `target`. `begin` and
// `end` may lie within an element. `tensor` is the tensor's address.
void gather(const Segment& segment, const std::byte* tensor, std::uint64_t begin, std::uint64_t end, std::byte* target,
            const Processor& processor);

// The same as gather() for a segment with arithmetic (gather_arithmetic.cpp); the factors are among `tensors`. Uses 144
// KiB of stack.
void gather(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
            std::uint64_t begin, std::uint64_t end, std::byte* target, const Processor& processor);

// Makes bytes [begin, end) of the slot, whole tiles within a segment to which a product is added, past the caches. So
// many tiles together are cheaper than each alone, because matrices are made column by column. The segment's rows must
// be whole lines of the slot, and the processor have a TileWriter. The tiles are added to `sums`, which are zero at
// first.
void stream_product(const Segment& segment, const Arithmetic& arithmetic, std::span<const std::byte* const> tensors,
                    std::uint64_t begin, std::uint64_t end, std::byte* slot, TileSums* sums,
                    const Processor& processor);

}  // namespace bascule::inline v0::kernels
