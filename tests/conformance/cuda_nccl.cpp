// Over NCCL itself: each reader a process, and to NCCL a host of its own.
#include "conformance/suite.h"

namespace bascule::test {
BASCULE_OVER_PROCESSES(CudaNccl, Conformance, "nccl", Place::kFolder);
BASCULE_OVER_PROCESSES(CudaNccl, ConformanceProcesses, "nccl", Place::kFolder);
BASCULE_OVER_PROCESSES(CudaNcclOverTcp, Conformance, "nccl", Place::kHost);
}  // namespace bascule::test
