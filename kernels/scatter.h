// Scatter: writes elements of one segment from the slot to their tensor, with casts on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// The first two functions are for segments whose elements in C order have rising addresses in the slot, like a box of a
// contiguous tensor.

// Returns where the last element ends, in bytes from the slot's beginning, or 0 if there is none.
std::uint64_t slot_reach_of(const Segment& segment);

// Returns how many elements begin before byte `slot_byte` of the slot.
std::uint64_t elements_before(const Segment& segment, std::uint64_t slot_byte);

// Writes elements [first, last), counted in C order, to the tensor at `tensor`. Strides may be any. `bytes` is the slot
// itself, or a loaded part of it that contains these elements, and starts at byte `bytes_begin` of the slot.
void scatter(const Segment& segment, std::uint64_t first, std::uint64_t last, const std::byte* bytes,
             std::uint64_t bytes_begin, std::byte* tensor, const Processor& processor);

}  // namespace bascule::inline v0::kernels
