// The one place that knows every scheme: it maps a URL's scheme to what implements it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Returns the scheme of that name. NOT_FOUND lists the schemes of this build and names the nearest; UNIMPLEMENTED says
// why this build lacks the scheme.
absl::StatusOr<const Scheme*> find_scheme(std::string_view name);

// all_schemes() returns the schemes of this build. known_schemes() returns these, and after them the schemes that this
// build lacks, which have no sender or receiver; their facts hold in every build.
std::span<const Scheme> all_schemes();
std::span<const Scheme> known_schemes();

// Returns the known scheme of that name, or null.
const Scheme* known_scheme(std::string_view name);

// Returns the scheme to recommend, or to choose, if all processes are on one host. Workers map its slots and read them
// in place. The slots lie on the device of the trainer's tensors if `on_device`, else in host memory. This build may
// lack the scheme.
const Scheme& plainest_scheme(bool on_device);

// Returns the schemes that keep their slots on a device, or else in host memory, for texts that say what to use:
// "memmap or shm".
std::string names_of_schemes(bool on_device);

// Returns the schemes whose slots a process can hand on to another sender (Scheme::hands_on): "cuda-ipc or shm".
std::string names_of_schemes_that_hand_on();

// Returns the scheme of an endpoint: `given` if it is not null, else the scheme that the endpoint names. Returns
// INVALID_ARGUMENT if the scheme lacks an option (the text names the schemes that have it, or the nearest option), if a
// value is wrong, or if the endpoint has a host although the scheme passes descriptors, which cannot leave the machine
// (the text says what to use instead).
absl::StatusOr<const Scheme*> scheme_for(const Endpoint& endpoint, const Scheme* given);

// Returns several lines for --help: each option that only some schemes have, with its values, schemes and effect.
std::string help_for_options();

}  // namespace bascule::inline v0
