// Casts of runs of elements, one element after the other.
#pragma once

#include <bascule/kernels/dtype.h>
#include <bascule/kernels/processor.h>

namespace bascule::inline v0::kernels {

// Null where the types are the same (that is a copy) or pack knows no such cast.
RunCast plain_run_cast(DType from, DType to);

}  // namespace bascule::inline v0::kernels
