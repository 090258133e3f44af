// Finds the processes that have a file open, as far as /proc shows them to this user. For error texts.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bascule::inline v0 {

struct Process {
  pid_t pid = 0;
  std::string name;  // the program's name, as ps shows it
};

// Returns the other processes that have the file of `fd` open, under any name, by rising pid. Reads all of /proc.
std::vector<Process> others_with_open(int fd);

// Whether this process has the file of `fd` open also under another descriptor.
bool opened_twice_here(int fd);

}  // namespace bascule::inline v0
