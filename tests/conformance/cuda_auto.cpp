#include "conformance/suite.h"

BASCULE_CONFORMANCE_AT(CudaAutoInPlace, "auto", Place::kFolder, 0, 0);
BASCULE_CONFORMANCE_AT(CudaAutoToHost, "auto", Place::kFolder, 0, kHost);
BASCULE_CONFORMANCE_AT(PeersByAuto, "auto", Place::kFolder, 0, 1);
