#include "program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bascule::test {

Program::Program(std::vector<std::string> command, std::filesystem::path log) : log_(std::move(log)) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
}

Program::Program(Program&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_), log_(std::move(other.log_)) {}

Program& Program::operator=(Program&& other) noexcept {
  kill();
  pid_ = std::exchange(other.pid_, -1);
  status_ = other.status_;
  log_ = std::move(other.log_);
  return *this;
}

Program::~Program() { kill(); }

void Program::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void Program::kill() {
  signal(SIGKILL);
  wait(std::chrono::seconds(60));
}

bool Program::running() { return wait(std::chrono::seconds(0)) == -1; }

int Program::wait(std::chrono::seconds timeout) {
  eventually(
      [this] {
        int status = 0;
        if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
          status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
          pid_ = -1;
        }
        return pid_ <= 0;
      },
      timeout);
  return pid_ > 0 ? -1 : status_;
}

std::string Program::output() const {
  std::ifstream stream(log_);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool eventually(const std::function<bool()>& condition, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace bascule::test
