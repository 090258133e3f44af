// The process's limit of open descriptors, RLIMIT_NOFILE. The library names it in errors (errno_status()) and never
// changes it; programs raise theirs (program/descriptors.h).
#pragma once

#include <cstddef>

namespace bascule::inline v0 {

// How many descriptors unidentified peers may take: the lower of `most` and 1/`part` of the process's limit.
std::size_t share_of_descriptors(std::size_t most, std::size_t part);

}  // namespace bascule::inline v0
