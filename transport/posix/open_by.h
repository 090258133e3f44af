// Finds the processes that have a file open, and whether a process has ended, as far as /proc shows them to this user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bascule::inline v0 {

struct Process {
  pid_t pid = 0;
  std::string name;  // the program's name, as ps shows it
};

// Returns the other processes that have one of the files of `fds` open, under any name, by rising pid. The two ends of
// a pipe are one file. Reads all of /proc.
std::vector<Process> others_with_open(std::span<const int> fds);
inline std::vector<Process> others_with_open(int fd) { return others_with_open(std::span(&fd, 1)); }

// "pid 71 (python3)", "pid 71 (python3), pid 72 (sleep) and 3 more"
std::string names_of(const std::vector<Process>& processes);

// A process of this host, told apart from later ones of the same pid by when it started.
struct ProcessMark {
  pid_t pid = 0;  // 0: unknown, as in another pid namespace
  std::uint64_t started = 0;
};
ProcessMark mark_of(pid_t pid);
bool has_ended(const ProcessMark& process);  // false if that is not known; true for a zombie

// Whether this process has the file of `fd` open also under another descriptor.
bool opened_twice_here(int fd);

}  // namespace bascule::inline v0
