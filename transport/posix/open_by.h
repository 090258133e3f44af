// Finds the processes that have a file open, and whether a process has ended, as far as /proc shows them to this user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bascule/transport/deadline.h>

namespace bascule::inline v0 {

struct Process {
  pid_t pid = 0;
  std::string name;  // the program's name, as ps shows it
};

// An open file as /proc shows it: the text of the link /proc/<pid>/fd/<n>, such as "pipe:[4711]" for both ends of a
// pipe, or a path. Processes are compared by it, because stat() would ask the file itself, and a file on a server that
// hangs never answers. `inode` tells files of the same path apart; empty: the kernel does not show it.
struct OpenFile {
  std::string link;
  std::string inode{};
};
std::optional<OpenFile> open_file(int fd);  // of this process; nullopt: /proc does not show it

// Returns for each of `files` the other processes that have it open, by rising pid. Reads all of /proc once, however
// many files there are; no file in it is touched, so it cannot hang. Processes that are not read by `deadline` are
// left out.
std::vector<std::vector<Process>> others_with_open(std::span<const OpenFile> files, Deadline deadline);

// "pid 71 (python3)", "pid 71 (python3), pid 72 (sleep) and 3 more"
std::string names_of(const std::vector<Process>& processes);

// A process of this host, told apart from later ones of the same pid by when it started.
struct ProcessMark {
  pid_t pid = 0;  // 0: unknown, as in another pid namespace
  std::uint64_t started = 0;
};
ProcessMark mark_of(pid_t pid);
bool has_ended(const ProcessMark& process);  // false if that is not known; true for a zombie without living threads

// Whether the process has the file open; for this process: also under another descriptor than `except`.
bool has_open(pid_t pid, const OpenFile& file, int except = -1);

}  // namespace bascule::inline v0
