// Scatter: elements of one segment, from the slot to their tensor, cast on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// For segments whose elements rise in address on the slot's side, in C order, as those of a box do that is cut out of
// a contiguous tensor.

// Where the last element ends, in bytes from the slot's beginning; 0 where there is none.
std::uint64_t slot_reach_of(const Segment& segment);

// How many elements begin before byte `slot_byte` of the slot.
std::uint64_t elements_before(const Segment& segment, std::uint64_t slot_byte);

// Writes elements [first, last), counted in C order, to the tensor at `tensor`. Any strides. `bytes` are those of the
// slot from byte `bytes_begin` on: the slot itself, or what was loaded of it, as far as these elements lie.
void scatter(const Segment& segment, std::uint64_t first, std::uint64_t last, const std::byte* bytes,
             std::uint64_t bytes_begin, std::byte* tensor, const Processor& processor);

}  // namespace bascule::inline v0::kernels
