// Every promise holds where the control connection is TCP: no descriptor travels, and each worker has memory of its
// own.
#include "conformance/suite.h"

BASCULE_CONFORMANCE_AT(FakeOverTcp, "fake", Place::kHost);
