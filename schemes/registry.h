// The one place that knows every scheme: it maps a URL's scheme to what implements it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// NOT_FOUND lists the schemes that there are and names the nearest. UNIMPLEMENTED says why this build lacks it.
absl::StatusOr<const Scheme*> find_scheme(std::string_view name);

// The schemes of this build; and all schemes, the ones that this build lacks last. Those have no sender or receiver,
// but their facts hold in every build.
std::span<const Scheme> all_schemes();
std::span<const Scheme> known_schemes();

// Returns the known scheme of that name, or null.
const Scheme* known_scheme(std::string_view name);

// The scheme to recommend, or to choose, if all processes are on one host. Workers map the slots, which lie on the
// device of the trainer's tensors or in host memory, and read them in place. This build may lack it.
const Scheme& plainest_scheme(bool on_device);

// "memmap or shm": the schemes that keep their slots on a device, or in host memory, for texts that say what to use.
std::string names_of_schemes(bool on_device);

// The scheme of an endpoint: `given` if it is not null, else the scheme that the endpoint names. INVALID_ARGUMENT: the
// scheme lacks an option (the text names the schemes that have it, or the nearest option), a value is wrong, or the
// endpoint has a host although the scheme passes descriptors, which cannot leave the machine (the text says what to use
// instead).
absl::StatusOr<const Scheme*> scheme_for(const Endpoint& endpoint, const Scheme* given);

// Every option that only some schemes have, with its values, its schemes and its effect. Several lines, for --help.
std::string help_for_options();

}  // namespace bascule::inline v0
