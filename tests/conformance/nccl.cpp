// The suite over the scheme nccl, with the fake NCCL: its ranks are threads of one process, and so are the readers.
#include "conformance/suite.h"

namespace bascule::test {
BASCULE_OVER_THREADS(HostNccl, Conformance, "host-nccl", Place::kFolder);
BASCULE_OVER_THREADS(HostNcclOverTcp, Conformance, "host-nccl", Place::kHost);
BASCULE_OVER_THREADS(HostNccl, SingleCopy, "host-nccl", Place::kFolder);
}  // namespace bascule::test
