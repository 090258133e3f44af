// A child process that answers line by line: it reads a line from its stdin and writes the answer to its stdout. Its
// stderr is ours.
//
// Threads: one. No call raises SIGPIPE.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/process/child_process.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

class LineProcess {
 public:
  // Starts `command`: a program, found in PATH if its name has no slash, and its arguments. Returns INVALID_ARGUMENT if
  // there is no such program or it may not be run; RESOURCE_EXHAUSTED without a process or descriptor for it.
  static absl::StatusOr<std::unique_ptr<LineProcess>> start(std::vector<std::string> command);

  // Closes its stdin, gives it a second to end unless an exchange() timed out, and then kills its whole group. If this
  // process ends without a destructor, a small watcher process kills the group.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Looks at a line that the program printed. Returns false to pass over it, and an error to give up.
  using IsAnswer = std::function<absl::StatusOr<bool>(std::string_view line)>;

  // Writes `line` and a newline, and returns the program's next line that `is_answer`, without its newline. Blocks for
  // at most `timeout`. Reads while it writes, so a program may answer before it has read everything. Returns
  // UNAVAILABLE if it ended (the text says how) or closed a pipe, DEADLINE_EXCEEDED if it did not answer in time,
  // RESOURCE_EXHAUSTED for a line over 256 MiB, CANCELLED once `stopped`, called a few times per second, returns true,
  // and the errors of `is_answer`. After an error it is unusable.
  absl::StatusOr<std::string> exchange(
      std::string_view line, absl::Duration timeout, const std::function<bool()>& stopped = [] { return false; },
      const IsAnswer& is_answer = [](std::string_view) { return true; });

  pid_t pid() const { return process_.pid(); }

 private:
  LineProcess(ChildProcess process, UniqueFd to, UniqueFd from, ChildProcess watcher, UniqueFd alive)
      : process_(std::move(process)),
        to_(std::move(to)),
        from_(std::move(from)),
        watcher_(std::move(watcher)),
        alive_(std::move(alive)) {}
  absl::StatusOr<std::optional<std::string>> next_answer(const IsAnswer& is_answer);
  absl::Status write_some(std::string_view& rest);
  absl::Status read_some();
  absl::Status after_its_lines(absl::Status why, const IsAnswer& is_answer);
  absl::Status gone(std::string_view how) const;

  ChildProcess process_;
  UniqueFd to_, from_;  // its stdin and stdout, which never block
  ChildProcess watcher_;
  UniqueFd alive_;            // to the watcher: a line makes it exit, an end of file makes it kill
  std::string read_;          // bytes that were read but not yet returned
  std::size_t searched_ = 0;  // of read_, without a newline
  bool hangs_ = false;        // exchange() gave up waiting
};

}  // namespace bascule::ref
