// A scheme whose slots consist of a region per rank, as slots on several GPUs do, but in host memory.
#pragma once

#include <bascule/transport/scheme.h>

namespace bascule::test {

// Its name is "regions". Each region is a memfd of the rank that writes it; workers map all of them side by side.
const Scheme& host_regions_scheme();

}  // namespace bascule::test
