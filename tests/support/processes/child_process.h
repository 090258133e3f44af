// ChildProcess: a program of the tests, spoken to in lines over a socket that is its stdin; killed with its owner.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/processes/line_end.h"

namespace bascule::test {

class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command);  // path first
  ~ChildProcess();                                          // by SIGKILL where it has not ended
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  LineEnd& lines() { return lines_; }
  pid_t pid() const { return pid_; }
  bool alive();  // also where it stands still

  // SIGKILL also waits until the process is gone, SIGSTOP until it stands still.
  void signal(int number);
  // Its exit status, or minus the signal that ended it; waits without limit only for what was told to end.
  int wait();

 private:
  LineEnd lines_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace bascule::test
