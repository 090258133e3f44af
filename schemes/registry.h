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

// The schemes of this build, and all schemes: those that this build lacks come last. They have no ends, but what is
// known of them is true of every build.
std::span<const Scheme> all_schemes();
std::span<const Scheme> known_schemes();

// The same by name; null if there is no such scheme.
const Scheme* known_scheme(std::string_view name);

// The scheme to advise, or to choose, if all processes are on one host: workers map the slots, which lie on the device
// of the trainer's tensors or in host memory, and read them in place. This build may lack it.
const Scheme& plainest_scheme(bool on_device);

// "memmap or shm": those that keep their slots on a device, or in host memory, for texts that say what to use instead.
std::string names_of_schemes(bool on_device);

// The scheme of an endpoint: `given` if it is not null, else the one of its name. INVALID_ARGUMENT: an option that the
// scheme does not have (the text names the schemes that have it, or else the nearest option) or a wrong value of one;
// or the scheme hands over descriptors, which cannot leave the machine, and the endpoint has a host (the text says what
// to use instead).
absl::StatusOr<const Scheme*> scheme_for(const Endpoint& endpoint, const Scheme* given);

// Every option that only some schemes have: its values, its schemes, and what it does. Some lines, for --help.
std::string help_for_options();

}  // namespace bascule::inline v0
