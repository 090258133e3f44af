// Casts runs of elements, one element after the other.
#pragma once

#include <cstddef>

#include <bascule/kernels/dtype.h>

namespace bascule::inline v0::kernels {

// Casts `elements` elements that lie in one run on both sides, at any alignment.
using RunCast = void (*)(const std::byte* source, std::byte* target, std::size_t elements);

// Returns null if the types are equal, which needs only a copy, or if pack lacks the cast.
RunCast plain_run_cast(DType from, DType to);

}  // namespace bascule::inline v0::kernels
