// Observes an endpoint from outside: the status that its sender reports, and whether the slots match it. Takes no lease
// and changes nothing. bascule-status prints the result.
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

// Asks the sender, computes the digest of every whole slot with all cores, and asks again, so that a slot's state,
// version and check belong to the same moment. Without a sender it looks for versions that the scheme keeps at the
// endpoint. Blocks; each time it asks, it waits for the answer as long as query_status() does. Returns NOT_FOUND if the
// target is neither an endpoint nor a folder, or its scheme is unknown; INVALID_ARGUMENT if the endpoint is malformed;
// FAILED_PRECONDITION, UNAVAILABLE, PERMISSION_DENIED or UNAUTHENTICATED, with the reason, if it could observe nothing.
absl::StatusOr<Observation> observe(const ObserveOptions& options);

}  // namespace bascule::inline v0
