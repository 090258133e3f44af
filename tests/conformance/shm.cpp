#include "conformance/suite.h"

BASCULE_CONFORMANCE(Shm, "shm");
