// The suite over NCCL itself: each reader is a process, which NCCL takes for a separate host.
#include "conformance/suite.h"

namespace bascule::test {
BASCULE_OVER_PROCESSES(CudaNccl, Conformance, "nccl", Place::kFolder);
BASCULE_OVER_PROCESSES(CudaNccl, ConformanceProcesses, "nccl", Place::kFolder);
BASCULE_OVER_PROCESSES(CudaNcclOverTcp, Conformance, "nccl", Place::kHost);
}  // namespace bascule::test
