// ChildProcess: a program of the tests, commanded by lines over a socket that is its stdin. It is killed with its
// owner.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/processes/line_end.h"

namespace bascule::test {

class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command);  // path first
  ~ChildProcess();                                          // by SIGKILL if it has not ended
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  LineEnd& lines() { return lines_; }
  pid_t pid() const { return pid_; }
  bool alive();  // also true of a stopped process

  // After SIGKILL it also waits until the process is gone, after SIGSTOP until it has stopped.
  void signal(int number);
  // Its exit status, or minus the signal that ended it. It waits without limit: call it for a process that must end.
  int wait();

 private:
  LineEnd lines_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace bascule::test
