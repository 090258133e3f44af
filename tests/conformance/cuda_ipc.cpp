#include "conformance/suite.h"

BASCULE_CONFORMANCE(CudaIpc, "cuda-ipc");
BASCULE_SINGLE_COPY_CONFORMANCE(CudaIpc, "cuda-ipc");
