// The limit of open descriptors where it is reached: RLIMIT_NOFILE of this process, or the system's. The library names
// it and leaves it alone; programs raise theirs (program/descriptors.h).
#pragma once

#include <cstddef>
#include <string>

namespace bascule::inline v0 {

// Which limit `error` is about, its value and what to do, to stand behind the error's text: "; RLIMIT_NOFILE (ulimit
// -n) of this process is 1024: …". Only for EMFILE and ENFILE; empty for every other error.
std::string which_descriptor_limit(int error);

// How many descriptors peers may take that nobody knows yet: `most`, or a `part`th of those that this process may open.
std::size_t share_of_descriptors(std::size_t most, std::size_t part);

}  // namespace bascule::inline v0
