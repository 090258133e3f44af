// Counts of this process's heap allocations: the program's operator new is replaced by one that counts.
#pragma once

#include <cstdint>

namespace bascule::bench {

struct Allocations {
  std::uint64_t count = 0, bytes = 0;  // since the process began, by all threads
};
Allocations allocations();

}  // namespace bascule::bench
