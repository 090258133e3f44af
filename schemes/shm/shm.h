// shm: host memory shared by descriptor. A slot is a sealed memfd. Readers map it read-only and read in place, so
// nothing is delivered or copied.
#pragma once

#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

Scheme shm_scheme();

}  // namespace bascule::inline v0
