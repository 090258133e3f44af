#include "conformance/suite.h"

BASCULE_CONFORMANCE(CudaIpc, "cuda-ipc");
BASCULE_CONFORMANCE_AT(Peers, "cuda-ipc", Place::kFolder, 0, 1);  // engines on a peer GPU
BASCULE_CONFORMANCE_AT(PeersInAChain, "cuda-ipc", Place::kFolder, 0, 1, "relay=chain");
BASCULE_SINGLE_COPY_CONFORMANCE(CudaIpc, "cuda-ipc");
