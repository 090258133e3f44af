// Whether tensors share bytes: what a single copy (slots=1), which moves each tensor to a place of its own, must
// refuse.
#pragma once

#include <span>

#include "absl/status/status.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// OK where no byte belongs to two of `views`, which lie in one place. INVALID_ARGUMENT names two tensors that share
// one: a row of a matrix and the matrix, a flat view over several. Tensors that are one storage under two names are
// given once. What a tensor does to itself (an expanded dimension) is no matter here.
//
// Exact for tensors whose strides nest, as those of every slice, transpose and chunk do: columns of one matrix lie
// among each other and share nothing. Refused although they may share nothing: tensors that lie among each other and
// whose strides do not nest (as_strided), or that are cut into more than 16 million pieces. The text says so. n log n
// in the tensors, and in the pieces of those that lie among each other. Does not block; allocates.
absl::Status check_apart(std::span<const TensorView> views);

}  // namespace bascule::inline v0
