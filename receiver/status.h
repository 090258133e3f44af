// Looking at an endpoint from outside: what its sender says of itself, and whether the slots hold what it says. Takes
// no lease and changes nothing; what bascule-status prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/receiver/observation.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

struct ObserveOptions {
  std::string target;              // an endpoint's URL, or a folder
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

// Asks the sender, makes the digest of every whole slot with all cores, and asks again: a slot's state, version and
// check are of one moment. Without a sender it looks for versions that a scheme keeps there. Blocks, for a sender that
// does not answer until the endpoint's suspect_after. INVALID_ARGUMENT: no endpoint and no folder. UNAVAILABLE,
// NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED: nothing can be said, and why.
absl::StatusOr<Observation> observe(const ObserveOptions& options);

}  // namespace bascule::inline v0
