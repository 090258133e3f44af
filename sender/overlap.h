// Checks whether tensors share bytes. A single copy (slots=1) moves each tensor to its own place, so it must refuse
// them.
#pragma once

#include <span>

#include "absl/status/status.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// Returns OK if no byte belongs to two of `views`, which must lie in one place. INVALID_ARGUMENT names two tensors that
// share a byte: a row of a matrix and the matrix, a flat view over several. Pass tensors that are one storage under two
// names once. A tensor that overlaps itself (an expanded dimension) is accepted.
//
// Exact for tensors whose strides nest, as in every slice, transpose and chunk: columns of one matrix are interleaved
// and share nothing. Interleaved tensors are refused, although they may share nothing, if their strides do not nest
// (as_strided) or they consist of more than 16 million runs; the text says so. Takes n log n time in the tensors, and
// in the runs of interleaved ones. Does not block; allocates.
absl::Status check_apart(std::span<const TensorView> views);

}  // namespace bascule::inline v0
