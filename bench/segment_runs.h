// Segments for the benchmarks of single operations.
#pragma once

#include <cstdint>
#include <vector>

#include <bascule/kernels/dtype.h>
#include <bascule/kernels/segment.h>

namespace bascule::bench {

// Returns `tensors` runs of `elements` elements each, consecutive in the slot.
inline std::vector<kernels::Segment> segment_runs(DType tensor, DType slot, std::uint64_t tensors,
                                                  std::uint64_t elements) {
  std::vector<kernels::Segment> segments(tensors);
  for (std::uint64_t i = 0; i < tensors; ++i)
    segments[i] = {.tensor = static_cast<std::uint32_t>(i),
                   .tensor_dtype = tensor,
                   .slot_dtype = slot,
                   .slot_offset = i * elements * size_of(slot),
                   .elements = elements,
                   .shape = {static_cast<std::int64_t>(elements)},
                   .tensor_strides = {1},
                   .slot_strides = {1}};
  return segments;
}

}  // namespace bascule::bench
