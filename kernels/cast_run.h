// Casts of runs of elements, one element after the other.
#pragma once

#include "kernels/dtype.h"
#include "kernels/processor.h"

namespace bascule::kernels {

// Null where the types are the same (that is a copy) or pack knows no such cast.
RunCast plain_run_cast(DType from, DType to);

}  // namespace bascule::kernels
