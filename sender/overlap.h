// Checks whether tensors share bytes. A single copy (slots=1) moves each tensor to its own place, so it must refuse
// tensors that do.
#pragma once

#include <span>

#include "absl/status/status.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Returns OK if no byte belongs to two of `views`, which must lie in one place. INVALID_ARGUMENT names two tensors that
// share a byte, such as a matrix and one of its rows, or a tensor and a flat view over several. If one storage has two
// names, pass it once. A tensor that overlaps itself (an expanded dimension) is accepted.
//
// The answer is exact for tensors whose strides nest, as in every slice, transpose and chunk; for example, the columns
// of one matrix are interleaved and share nothing. Interleaved tensors are refused, although they may share nothing, if
// their strides do not nest (as_strided) or they consist of more than 16 million runs; the text says so. Takes O(n log
// n) time in the number of tensors, and of the runs of interleaved tensors. Does not block; allocates.
absl::Status check_apart(std::span<const TensorView> views);

}  // namespace bascule::inline v0
