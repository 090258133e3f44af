#include <bascule/bench/supervise.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <bascule/transport/program/signals.h>

namespace bascule::bench {
namespace {

// Reaps every child that has ended, and sets `status` when `child` has. Returns false if no child is left.
bool reap(pid_t child, int& status, int options) {
  int ended_by = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(-1, &ended_by, options)) > 0 || (ended < 0 && errno == EINTR))
    if (ended == child) status = ended_by;
  return ended == 0;
}

// The signal that interrupted the run, or 0 once the child has ended by itself.
int wait_for(pid_t child, int& status, const sigset_t& awaited) {
  while (true) {
    reap(child, status, WNOHANG);
    if (status != -1) return 0;
    const int signal = ::sigwaitinfo(&awaited, nullptr);
    if (signal > 0 && signal != SIGCHLD) return signal;
  }
}

}  // namespace

int supervise(const RunFolders& folders, const std::function<int()>& work) {
  sigset_t awaited, before;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (const int signal : stop_signals()) sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that it can also wait for the workers
  const pid_t self = ::getpid(), child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) std::_Exit(1);
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    std::exit(work());
  }
  if (child < 0) {
    const int error = errno;
    folders.remove();
    std::fprintf(stderr, "bascule-bench: cannot start a process: %s\n", std::strerror(error));
    return 1;
  }
  int status = -1;
  const int interrupted = wait_for(child, status, awaited);
  if (interrupted != 0) ::kill(child, SIGKILL);
  reap(child, status, 0);  // workers end with the child
  folders.remove();
  if (interrupted != 0) {
    std::signal(interrupted, SIG_DFL);
    ::raise(interrupted);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);  // it ends here
    return 128 + interrupted;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "bascule-bench: signal %d (%s) ended the run; its files are removed\n", WTERMSIG(status),
               ::strsignal(WTERMSIG(status)));
  return 128 + WTERMSIG(status);
}

}  // namespace bascule::bench
