// Every promise over one sender that serves workers in several ways at once.
#include "conformance/suite.h"

BASCULE_CONFORMANCE(HostAuto, "host-auto");
