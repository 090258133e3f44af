// Slots in host memory with a GPU at either end.
#include "conformance/suite.h"

BASCULE_CONFORMANCE_AT(ShmDeviceToHost, "shm", Place::kFolder, 0, kHost);
BASCULE_CONFORMANCE_AT(ShmHostToDevice, "shm", Place::kFolder, kHost, 0);
BASCULE_CONFORMANCE_AT(ShmDeviceToDevice, "shm", Place::kFolder, 0, 0);
BASCULE_CONFORMANCE_AT(MemmapDeviceToDevice, "memmap", Place::kFolder, 0, 0);
BASCULE_FILES_CONFORMANCE_AT(MemmapDeviceToDevice, "memmap", Place::kFolder, 0, 0);
