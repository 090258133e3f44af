// Every promise over one sender that serves workers by several paths at once. With other hosts the fake of NCCL takes
// part, whose ranks are threads of one process.
#include "conformance/suite.h"

BASCULE_CONFORMANCE(HostAuto, "host-auto");

namespace bascule::test {
BASCULE_OVER_THREADS(HostAutoAcrossHosts, Conformance, "host-auto", Place::kBoth);
BASCULE_OVER_BOTH(HostAuto, SingleCopy, "host-auto", Place::kFolder);
}  // namespace bascule::test
