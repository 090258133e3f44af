// The --sync flag of programs: an endpoint that can never work is refused before anything is read.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include <bascule/kernels/dtype.h>
#include <bascule/sender/endpoint_facts.h>

namespace bascule::inline v0 {

enum class SyncEnd { kSender, kReceiver };

// Returns OK if a program that computes at `where` could be this end of `endpoint`; INVALID_ARGUMENT if `endpoint` is
// not one, if there is no such scheme (the nearest is named), or if the slots lie on a GPU and the scheme does not
// reach a program on the CPU; another error if this build lacks the scheme. Touches no file and no network.
absl::Status check_sync(std::string_view endpoint, ComputesOn where, SyncEnd end);

// Returns OK if `endpoint`, which passed check_sync(), has more than one slot or can serve the sender's own tensors of
// type `dtype` as a single copy (slots=1). Returns INVALID_ARGUMENT if a single copy would need a cast, or slots in
// files, or slots in host memory for a program that computes on a GPU; each text says what to give instead.
absl::Status check_single_copy(std::string_view endpoint, ComputesOn where, DType dtype);

// Returns OK if this build can move weights between GPUs' memories; else UNIMPLEMENTED says what a build needs for it.
absl::Status check_build_for_gpus();

}  // namespace bascule::inline v0
