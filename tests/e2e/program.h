// A real program, run by a test. Its output goes to a file; it never outlives the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace bascule::test {

class Program {
 public:
  // Starts `command`, found by its path; stdout and stderr are written to `log`.
  Program(std::vector<std::string> command, std::filesystem::path log);
  Program(Program&& other) noexcept;
  Program& operator=(Program&& other) noexcept;  // kills what was held
  ~Program();                                    // kills

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void kill();  // SIGKILL, and waits until it is gone
  bool running();
  // Its exit status, or 128 + the signal that ended it, or -1 if it still runs at the deadline.
  int wait(std::chrono::seconds timeout);
  std::string output() const;  // so far

 private:
  pid_t pid_ = -1;
  int status_ = -1;  // once it ended
  std::filesystem::path log_;
};

// Waits until `condition` holds; returns false at the deadline.
bool eventually(const std::function<bool()>& condition, std::chrono::seconds timeout);

}  // namespace bascule::test
