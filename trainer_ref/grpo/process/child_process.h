// A program that this one runs: how it starts, how it ended, and that nothing of it is left.
//
// Threads: one at a time. It lives in a process group of its own, so that a terminal's Ctrl-C is not for it, and so
// that what it started ends with it.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

struct ChildOptions {
  std::vector<std::string> command = {};     // a program, looked for in PATH where its name has no slash; arguments
  int input = -1, output = -1, errors = -1;  // its stdin, stdout and stderr; -1: ours
  bool own_session = false;                  // not only a group: the terminal is not its own either
  bool ends_with_thread = false;             // SIGKILL when the thread that starts it ends, however it ends
};

class ChildProcess {
 public:
  // Blocks until the program runs. It inherits no descriptor of ours but the three. The signals that we ignore or block
  // are not ignored or blocked by it. Safe in a program with threads. NOT_FOUND or PERMISSION_DENIED: there is no such
  // program, or it may not be run; RESOURCE_EXHAUSTED, UNAVAILABLE: no process, memory or descriptor is left.
  static absl::StatusOr<ChildProcess> start(ChildOptions options);

  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills its whole group, and waits until it has ended

  pid_t pid() const { return pid_; }
  void signal(int number) const;  // to its whole group
  // Whether it has ended; its number stays taken.
  bool ends_within(absl::Duration time) const;
  // "it ended with exit status 2", "it was ended by signal 9"; empty as long as it lives.
  std::string how_it_ended() const;
  int exit_status() const;  // -1: it lives, or a signal ended it

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void end();
  pid_t pid_ = -1;
};

// Neither end is inherited, nor is one of the numbers 0 to 2, whatever of these we were started without.
struct Pipe {
  UniqueFd read, write;
};
absl::StatusOr<Pipe> make_pipe();

}  // namespace bascule::ref
