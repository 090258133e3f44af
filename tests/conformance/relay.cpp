// The suite over a relay in host memory, in which engines copy versions from each other, or share one engine's copy.
#include "conformance/suite.h"

BASCULE_CONFORMANCE(HostRelay, "host-relay");
BASCULE_CONFORMANCE(SharedRelay, "shared-relay");

namespace bascule::test {
BASCULE_OVER_BOTH(HostRelay, SingleCopy, "host-relay", Place::kFolder);
}  // namespace bascule::test
