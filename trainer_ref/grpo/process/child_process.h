// A child process: starts it, reports how it ended, and ends it with all processes that it started.
//
// Threads: one at a time. The child gets its own process group, so that a terminal's Ctrl-C does not reach it, and so
// that its own children end with it.
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
  std::vector<std::string> command = {};     // a program, found in PATH if its name has no slash; arguments
  int input = -1, output = -1, errors = -1;  // its stdin, stdout and stderr; -1: ours
  bool own_session = false;                  // a new session, without the terminal, instead of only a group
  bool ends_with_thread = false;             // SIGKILL when the thread that starts it ends for any reason
};

class ChildProcess {
 public:
  // Blocks until the program runs. It inherits only the three descriptors, and no ignored or blocked signals. Safe in a
  // program with threads. Returns NOT_FOUND or PERMISSION_DENIED if there is no such program or it may not be run;
  // RESOURCE_EXHAUSTED or UNAVAILABLE if no process, memory or descriptor is available.
  static absl::StatusOr<ChildProcess> start(ChildOptions options);

  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills its whole group, and waits until it has ended

  pid_t pid() const { return pid_; }
  void signal(int number) const;  // to its whole group
  // Waits for at most `time` for it to end, and returns whether it has. Its process id is not reused until destruction.
  bool ends_within(absl::Duration time) const;
  // "it ended with exit status 2", "it was ended by signal 9"; empty while it runs.
  std::string how_it_ended() const;
  int exit_status() const;  // -1 while it runs, or if a signal ended it

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void end();
  pid_t pid_ = -1;
};

// Children inherit neither end. Neither descriptor is 0, 1 or 2, even if this process was started without these.
struct Pipe {
  UniqueFd read, write;
};
absl::StatusOr<Pipe> make_pipe();

}  // namespace bascule::ref
