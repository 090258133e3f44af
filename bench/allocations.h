// Counts this process's heap allocations, with a replaced operator new.
#pragma once

#include <cstdint>

namespace bascule::bench {

struct Allocations {
  std::uint64_t count = 0, bytes = 0;  // of all threads, since the process began
};
Allocations allocations();

}  // namespace bascule::bench
