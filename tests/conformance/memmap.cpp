#include "conformance/suite.h"

BASCULE_CONFORMANCE(Memmap, "memmap");
BASCULE_FILES_CONFORMANCE(Memmap, "memmap");
