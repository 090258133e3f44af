// The limit of open descriptors, RLIMIT_NOFILE of this process. The library names it (errno_status()) and leaves it
// alone; programs raise theirs (program/descriptors.h).
#pragma once

#include <cstddef>

namespace bascule::inline v0 {

// How many descriptors peers may take that nobody knows yet: `most`, or a `part`th of those that this process may open.
std::size_t share_of_descriptors(std::size_t most, std::size_t part);

}  // namespace bascule::inline v0
