// The suite over one sender that serves workers by several paths at once. Workers on other hosts use the fake NCCL,
// whose ranks are threads of one process.
#include "conformance/suite.h"

BASCULE_CONFORMANCE(HostAuto, "host-auto");

namespace bascule::test {
BASCULE_OVER_THREADS(HostAutoAcrossHosts, Conformance, "host-auto", Place::kBoth);
BASCULE_OVER_BOTH(HostAuto, SingleCopy, "host-auto", Place::kFolder);
}  // namespace bascule::test
