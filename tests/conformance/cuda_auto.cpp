// auto on GPUs. Across hosts, each reader is a process, which NCCL takes for a separate host.
#include "conformance/suite.h"

BASCULE_CONFORMANCE_AT(CudaAutoInPlace, "auto", Place::kFolder, 0, 0);
BASCULE_CONFORMANCE_AT(CudaAutoToHost, "auto", Place::kFolder, 0, kHost);
BASCULE_CONFORMANCE_AT(PeersByAuto, "auto", Place::kFolder, 0, 1);

namespace bascule::test {
BASCULE_OVER_PROCESSES(CudaAutoAcrossHosts, Conformance, "auto", Place::kBoth, 0, 0);
BASCULE_OVER_PROCESSES(CudaAutoAcrossHosts, ConformanceProcesses, "auto", Place::kBoth, 0, 0);
}  // namespace bascule::test
