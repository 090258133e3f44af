// Which processes have a file open, as /proc shows it to this user: for error texts.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bascule::inline v0 {

struct Process {
  pid_t pid = 0;
  std::string name;  // of its program, as ps shows it
};

// Those that have the file of `fd` open under whatever name, this one left out; by rising pid. Reads all of /proc.
std::vector<Process> others_with_open(int fd);

}  // namespace bascule::inline v0
