#include <bascule/trainer_ref/grpo/process/child_process.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr int kFirstFree = 3;  // after stdin, stdout and stderr

absl::StatusOr<UniqueFd> above_standard(UniqueFd fd) {
  if (fd.get() >= kFirstFree) return fd;
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstFree));
  if (!moved) return errno_status(errno, "make a pipe");
  return moved;
}

// Finds the program as execvp() does: a process that shares our memory must not search.
std::string path_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    std::string file = cat(folder.empty() ? "." : folder, "/", program);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return program;  // execv() says that there is none
}

// Everything that the child reads, made before it starts.
struct Start {
  const char* program;
  char* const* arguments;
  std::array<int, 3> standard;
  bool own_session, ends_with_thread;
  pid_t parent;
  int report;  // gets errno if the program cannot be run
};

// Runs in the child, which shares our memory until exec: makes only system calls, and writes none of our memory.
[[noreturn]] void become(const Start& start) {
  bool fine = start.own_session ? ::setsid() >= 0 : ::setpgid(0, 0) == 0;
  // If the parent ended before this call, the signal never comes, but getppid() has changed.
  if (fine && start.ends_with_thread) fine = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == start.parent;
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &by_default, nullptr);  // refused for some
  for (int number = 0; fine && number < kFirstFree; ++number)
    if (const int fd = start.standard.at(static_cast<std::size_t>(number)); fd >= 0) fine = ::dup2(fd, number) >= 0;
  // Closes all other descriptors at exec, even a socket without FD_CLOEXEC yet. Before Linux 5.11 they stay open.
  const int before = errno;
  ::close_range(kFirstFree, ~0U, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (fine) ::execv(start.program, start.arguments);
  const int error = fine ? errno : before;
  [[maybe_unused]] const ssize_t written = ::write(start.report, &error, sizeof error);
  ::_exit(127);
}

// Shares the memory, since a trainer's is too large to copy: this thread waits until the program runs.
pid_t start_child(const Start& start) {
  const pid_t pid = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork): become() makes system calls only
  if (pid == 0) become(start);
  return pid;
}

}  // namespace

absl::StatusOr<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status(errno, "make a pipe");
  UniqueFd read(ends[0]), write(ends[1]);
  Pipe pipe;
  BASCULE_ASSIGN(pipe.read, above_standard(std::move(read)));
  BASCULE_ASSIGN(pipe.write, above_standard(std::move(write)));
  return pipe;
}

absl::StatusOr<ChildProcess> ChildProcess::start(ChildOptions options) {
  BASCULE_ASSIGN(Pipe report, make_pipe());
  const std::string program = path_of(options.command.front());
  std::vector<char*> arguments;
  arguments.reserve(options.command.size() + 1);
  for (std::string& word : options.command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const Start start{.program = program.c_str(),
                    .arguments = arguments.data(),
                    .standard = {options.input, options.output, options.errors},
                    .own_session = options.own_session,
                    .ends_with_thread = options.ends_with_thread,
                    .parent = ::getpid(),
                    .report = report.write.get()};
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in the child
  const pid_t pid = start_child(start);
  int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string what = cat("start ", options.command.front());
  if (pid < 0) return errno_status(error, what);
  ChildProcess child(pid);
  report.write.reset();
  ssize_t count = 0;
  while ((count = ::read(report.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (count == sizeof error) return errno_status(error, what);  // reaps it
  return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  end();
  pid_ = std::exchange(other.pid_, -1);
  return *this;
}

ChildProcess::~ChildProcess() { end(); }

void ChildProcess::end() {
  if (pid_ < 0) return;
  signal(SIGKILL);  // before its process id can be reused
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(-pid_, number);
}

namespace {

siginfo_t end_of(pid_t pid) {
  siginfo_t info{};
  if (pid < 0 || ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) info.si_pid = 0;
  return info;
}

}  // namespace

bool ChildProcess::ends_within(absl::Duration time) const {
  const Deadline deadline(time);
  while (end_of(pid_).si_pid != pid_) {
    if (deadline.passed()) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

std::string ChildProcess::how_it_ended() const {
  const siginfo_t info = end_of(pid_);
  if (pid_ < 0 || info.si_pid != pid_) return "";
  if (info.si_code == CLD_EXITED) return cat("it ended with exit status ", info.si_status);
  return cat("it was ended by signal ", info.si_status);
}

int ChildProcess::exit_status() const {
  const siginfo_t info = end_of(pid_);
  return pid_ > 0 && info.si_pid == pid_ && info.si_code == CLD_EXITED ? info.si_status : -1;
}

}  // namespace bascule::ref
