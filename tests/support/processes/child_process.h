// ChildProcess: a program of the tests, commanded by lines over a socket that is its stdin. It is killed when this
// object is destroyed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/processes/line_end.h"

namespace bascule::test {

class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command);  // the program's path first
  ~ChildProcess();                                          // sends SIGKILL if the process has not ended
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  LineEnd& lines() { return lines_; }
  pid_t pid() const { return pid_; }
  bool alive();  // also true of a stopped process

  // Sends the signal. After SIGKILL, also waits until the process is gone; after SIGSTOP, until it has stopped.
  void signal(int number);
  // Waits without limit until the process ends, so call it for a process that must end. Returns its exit status, or
  // minus the signal that ended it.
  int wait();

 private:
  LineEnd lines_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace bascule::test
