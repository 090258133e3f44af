// The suite with control connections over TCP: no descriptor travels, and each worker has its own memory.
#include "conformance/suite.h"

BASCULE_CONFORMANCE_AT(FakeOverTcp, "fake", Place::kHost);
