// The process's limit of open descriptors, RLIMIT_NOFILE. The library names this limit in errors (errno_status()) and
// never changes it; Bascule's programs raise their own (program/descriptors.h).
#pragma once

#include <cstddef>

namespace bascule::inline v0 {

// Returns how many descriptors unidentified peers may use: the lower of `most` and 1/`part` of the process's limit.
std::size_t share_of_descriptors(std::size_t most, std::size_t part);

// Returns 0 if this process can open another descriptor now; otherwise the errno that says why not, such as EMFILE. For
// calls whose own error does not say that, and for files that seem to be missing.
int why_no_descriptor();

}  // namespace bascule::inline v0
