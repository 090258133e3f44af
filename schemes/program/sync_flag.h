// --sync of programs: refused before anything is read if it can never work; and what depends on its scheme.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include <bascule/kernels/dtype.h>
#include <bascule/sender/endpoint_facts.h>

namespace bascule::inline v0 {

// Whether a program that computes there could send or read weights at `endpoint`. INVALID_ARGUMENT: no endpoint, no
// such scheme (the nearest is named), or a scheme whose slots lie on a GPU for a program that computes on the CPU.
// Another error: a scheme that this build lacks. Touches no file and no network.
absl::Status check_sync(std::string_view endpoint, ComputesOn where);

// The same of a sender's own tensors as a single copy (slots=1): they are the slot, of `dtype`, for engines to read as
// they are. OK where `endpoint`, which check_sync() found right, has more slots. INVALID_ARGUMENT: a cast, slots that
// are files, or slots in host memory of a program that computes on a GPU; each with what to give.
absl::Status check_single_copy(std::string_view endpoint, ComputesOn where, DType dtype);

// Whether this build moves weights within GPUs. UNIMPLEMENTED says what a build needs for that.
absl::Status check_build_for_gpus();

}  // namespace bascule::inline v0
