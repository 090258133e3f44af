// The limit of open descriptors where it is reached: RLIMIT_NOFILE of this process, or the system's. The library names
// it and leaves it alone; programs raise theirs (program/descriptors.h).
#pragma once

#include <string>

namespace bascule::inline v0 {

// Which limit `error` is about, its value and what to do, to stand behind the error's text: "; RLIMIT_NOFILE (ulimit
// -n) of this process is 1024: …". Only for EMFILE and ENFILE; empty for every other error.
std::string which_descriptor_limit(int error);

}  // namespace bascule::inline v0
