// Reduces a tensor's dimensions to those that a kernel must loop over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <bascule/kernels/segment.h>

namespace bascule::inline v0 {

// The strides of a contiguous tensor of `shape`, in elements.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape);

// Fills rank, shape and strides of `segment`: drops dimensions of size 1 and merges neighbours that lie in one run on
// both sides. Returns false if more than kernels::kMaxRank dimensions remain.
bool merge_dimensions(std::span<const std::int64_t> shape, std::span<const std::int64_t> tensor_strides,
                      std::span<const std::int64_t> slot_strides, kernels::Segment& segment);

}  // namespace bascule::inline v0
