// Every promise over a relay, in which engines hand versions on to each other, its memory on the host.
#include "conformance/suite.h"

BASCULE_CONFORMANCE(HostRelay, "host-relay");

namespace bascule::test {
BASCULE_OVER_BOTH(HostRelay, SingleCopy, "host-relay", Place::kFolder);
}  // namespace bascule::test
