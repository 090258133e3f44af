// Scatter: elements of one segment, from the slot to their tensor, cast on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// For segments whose elements in C order have rising addresses in the slot, like a box of a contiguous tensor.

// The end of the last element, in bytes from the slot's beginning; 0 if there is none.
std::uint64_t slot_reach_of(const Segment& segment);

// How many elements begin before byte `slot_byte` of the slot.
std::uint64_t elements_before(const Segment& segment, std::uint64_t slot_byte);

// Writes elements [first, last), counted in C order, to the tensor at `tensor`. Any strides. `bytes` begin at byte
// `bytes_begin` of the slot, and are the slot itself or a loaded part that contains these elements.
void scatter(const Segment& segment, std::uint64_t first, std::uint64_t last, const std::byte* bytes,
             std::uint64_t bytes_begin, std::byte* tensor, const Processor& processor);

}  // namespace bascule::inline v0::kernels
