#include "support/processes/child_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>

namespace bascule::test {
ChildProcess::ChildProcess(std::vector<std::string> command) {
  auto [ours, childs] = LineEnd::make_pair();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, childs.get(), STDIN_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, command.front().c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command.front());
  lines_ = LineEnd(std::move(ours));
}

ChildProcess::~ChildProcess() {
  lines_ = LineEnd();
  if (!ended_) signal(SIGKILL);
}

void ChildProcess::signal(int number) {
  if (ended_) return;
  ::kill(pid_, number);
  if (number == SIGKILL) {
    wait();
  } else if (number == SIGSTOP) {
    int status = 0;
    while (::waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    if (!WIFSTOPPED(status)) ended_ = true, status_ = status;
  }
}

bool ChildProcess::alive() {
  if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

int ChildProcess::wait() {
  while (!ended_) {
    if (::waitpid(pid_, &status_, 0) == pid_ || errno != EINTR) ended_ = true;
  }
  return WIFSIGNALED(status_) ? -WTERMSIG(status_) : WEXITSTATUS(status_);
}

}  // namespace bascule::test
