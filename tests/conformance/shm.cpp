#include "conformance/suite.h"

BASCULE_CONFORMANCE(Shm, "shm");
BASCULE_SINGLE_COPY_CONFORMANCE(Shm, "shm");
