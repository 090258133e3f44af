// A scheme whose slots consist of a region per rank, as slots on several GPUs do, but in host memory.
#pragma once

#include <string_view>

#include <bascule/transport/scheme.h>

namespace bascule::test {

// Its name is "regions". Each region is a memfd of the rank that writes it; workers map all of them side by side.
const Scheme& host_regions_scheme();
inline bool is_host_regions(std::string_view endpoint) { return endpoint.starts_with("regions:"); }

}  // namespace bascule::test
