// Which processes have a file open, as /proc shows it to this user: for error texts.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bascule::inline v0 {

struct Process {
  pid_t pid = 0;
  std::string name;  // the program's, as ps shows it
};

// The other processes that have the file of `fd` open, under any name, by rising pid. Reads all of /proc.
std::vector<Process> others_with_open(int fd);

}  // namespace bascule::inline v0
